//! Right before a delete.

use super::case::{CLUSTER, Case, machine, made, proxy, uid};
use super::rows;
use crate::gc::{Removal, Spared, check_machine, check_proxy};
use crate::ids::Incarnation;
use crate::provider::{Instance, InstanceState, Observation};

fn orphan() -> Removal {
    Case::new(vec![machine("m", "u1")], vec![]).second().removals.remove(0)
}

fn surplus() -> Removal {
    let machines = vec![machine("m", "u1"), machine("other", "u1")];
    Case::new(machines, vec![proxy("u1", Some("other"), Some("other"))]).second().removals.remove(0)
}

fn found(machine: Instance) -> Observation {
    Observation::Found(Box::new(machine))
}

rows! {
    a_machine_that_is_gone_is_left: {
        assert_eq!(check_machine(&orphan(), CLUSTER, &Observation::Absent(None)), Err(Spared::Gone));
    }

    a_machine_that_somebody_deletes_is_left_to_it: {
        let mut going = machine("m", "u1");
        going.state = InstanceState::Deleting;
        assert_eq!(check_machine(&orphan(), CLUSTER, &found(going)), Err(Spared::Going));
    }

    a_delete_that_hangs_is_no_reason_to_leave_it: {
        let mut going = machine("m", "u1");
        going.state = InstanceState::Deleting;
        let stuck = Case::new(vec![going.clone()], vec![]).second().removals.remove(0);
        let target = check_machine(&stuck, CLUSTER, &found(going.clone())).unwrap();
        assert_eq!(target.incarnation, going.incarnation);
        going.incarnation = Incarnation::parse("m-2").ok();
        assert_eq!(check_machine(&stuck, CLUSTER, &found(going)), Err(Spared::NotOurs));
    }

    a_machine_whose_tags_no_longer_prove_it_ours_is_left: {
        let mut bare = machine("m", "u1");
        bare.tags.clear();
        let mut incarnation = machine("m", "u1");
        incarnation.incarnation = Incarnation::parse("m-2").ok();
        for changed in [
            made("m", "u1", "another-cluster", "gcp"),
            made("m", "u1", CLUSTER, "gcp-us"),
            machine("m", "u2"),
            machine("other", "u1"),
            bare,
            incarnation,
        ] {
            assert_eq!(check_machine(&orphan(), CLUSTER, &found(changed)), Err(Spared::NotOurs));
        }
    }

    a_proxy_that_exists_after_all_spares_its_machine: {
        let (living, facts) = proxy("u1", None, None);
        assert_eq!(check_proxy(&orphan(), Some((&living, &facts))), Err(Spared::ProxyChanged));
        let deleting = crate::gc::LivingProxy { deleting: true, ..facts };
        assert_eq!(check_proxy(&orphan(), Some((&living, &deleting))), Err(Spared::ProxyChanged));
    }

    a_proxy_that_names_the_machine_now_spares_it: {
        for (recorded, planned) in [
            (Some("m"), Some("other")),
            (Some("other"), Some("m")),
            (None, Some("other")),
            (Some("other"), None),
        ] {
            let (living, facts) = proxy("u1", recorded, planned);
            assert_eq!(check_proxy(&surplus(), Some((&living, &facts))), Err(Spared::ProxyChanged));
        }
        // Gone, being deleted, or another one by now: the next pass sees what the machine is then.
        let (living, mut facts) = proxy("u1", Some("other"), Some("other"));
        assert_eq!(check_proxy(&surplus(), None), Err(Spared::ProxyChanged));
        assert_eq!(check_proxy(&surplus(), Some((&uid("u2"), &facts))), Err(Spared::ProxyChanged));
        facts.deleting = true;
        assert_eq!(check_proxy(&surplus(), Some((&living, &facts))), Err(Spared::ProxyChanged));
    }

    all_is_as_it_was_so_the_machine_goes: {
        let seen = machine("m", "u1");
        let target = check_machine(&orphan(), CLUSTER, &found(seen.clone())).unwrap();
        assert_eq!(target.incarnation, seen.incarnation, "the delete means this incarnation alone");
        assert_eq!(check_proxy(&orphan(), None), Ok(()));
        // Another Proxy has taken the name.
        let (another, facts) = proxy("u2", Some("m"), Some("m"));
        assert_eq!(check_proxy(&orphan(), Some((&another, &facts))), Ok(()));
        let (living, facts) = proxy("u1", Some("other"), Some("other"));
        assert_eq!(check_proxy(&surplus(), Some((&living, &facts))), Ok(()));
    }
}
