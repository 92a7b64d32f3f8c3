//! A provider with machines, Proxies, and passes over both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::gc::{
    LivingProxy, MachineKey, Machines, Observed, Plan, Policy, Proxies, Seen, Sightings, Verdict, View, plan,
};
use crate::ids::{Incarnation, InstanceId, ProviderName, ProxyKey, ProxyUid};
use crate::lifecycle::{Owner, machine_tags, spec_hash};
use crate::provider::{Instance, InstanceState, Listing};
use crate::time::{Moment, Now};

pub(super) const CLUSTER: &str = "this-cluster";
pub(super) const TEN_MINUTES: Duration = Duration::from_mins(10);

pub(super) fn provider(name: &str) -> ProviderName {
    ProviderName::parse(name).unwrap()
}

pub(super) fn uid(text: &str) -> ProxyUid {
    ProxyUid::parse(text).unwrap()
}

pub(super) fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).unwrap()
}

/// A day after the epoch and some time later.
pub(super) fn at(later: Duration) -> Now {
    let day = Duration::from_hours(24);
    let wall = Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(day + later).unwrap();
    Now { wall, mono: Moment::after_start(later) }
}

/// A machine with all of our tags, an hour old at the beginning.
pub(super) fn machine(name: &str, of: &str) -> Instance {
    made(name, of, CLUSTER, "gcp")
}

pub(super) fn made(name: &str, of: &str, cluster: &str, by: &str) -> Instance {
    let spec = serde_json::from_str(r#"{"mode":"Managed","provider":"gcp"}"#).unwrap();
    let key = ProxyKey::new("crawl", format!("proxy-{of}"));
    let tags = machine_tags(&Owner::new(&uid(of), cluster), &key, &provider(by), &spec_hash(&spec, None));
    Instance {
        incarnation: Incarnation::parse(format!("{name}-1")).ok(),
        created_at: Some(Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(23)),
        tags,
        ..Instance::bare(id(name), format!("px-{of}"), InstanceState::Running)
    }
}

/// A Proxy that names these machines.
pub(super) fn proxy(of: &str, recorded: Option<&str>, planned: Option<&str>) -> (ProxyUid, LivingProxy) {
    let proxy = LivingProxy {
        key: ProxyKey::new("crawl", format!("proxy-{of}")),
        provider: Some(provider("gcp")),
        deleting: false,
        recorded: recorded.map(id),
        planned: planned.map(id),
    };
    (uid(of), proxy)
}

/// The provider `gcp`, the Proxies, and what the passes so far remember.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) observed: Observed,
    pub(super) policy: Policy,
}

impl Case {
    pub(super) fn new(machines: Vec<Instance>, proxies: Vec<(ProxyUid, LivingProxy)>) -> Self {
        let observed = Observed {
            cluster: CLUSTER.to_owned(),
            view: View::All,
            machines: BTreeMap::new(),
            proxies: Proxies::All(proxies.into_iter().collect()),
            sightings: Sightings::default(),
        };
        Self { observed, policy: Policy::default() }.listing("gcp", machines)
    }

    pub(super) fn listing(mut self, of: &str, items: Vec<Instance>) -> Self {
        let listing = Listing { items, unreachable: Vec::new() };
        self.observed.machines.insert(provider(of), Machines::Listed(listing));
        self
    }

    pub(super) fn partial(mut self, items: Vec<Instance>) -> Self {
        let listing = Listing { items, unreachable: vec!["zone-b".to_owned()] };
        self.observed.machines.insert(provider("gcp"), Machines::Listed(listing));
        self
    }

    pub(super) fn unlisted(mut self, of: &str) -> Self {
        self.observed.machines.insert(provider(of), Machines::Unlisted);
        self
    }

    pub(super) fn proxies(mut self, proxies: Proxies) -> Self {
        self.observed.proxies = proxies;
        self
    }

    pub(super) fn namespaces(mut self, names: &[&str]) -> Self {
        let names: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        self.observed.view = View::Namespaces(names);
        self
    }

    pub(super) fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// One pass, which the next one remembers.
    pub(super) fn pass(&mut self, later: Duration) -> Plan {
        let plan = plan(&self.observed, &self.policy, at(later));
        self.observed.sightings = plan.sightings.clone();
        plan
    }

    /// The second of two passes, ten minutes apart.
    pub(super) fn second(mut self) -> Plan {
        self.pass(Duration::ZERO);
        self.pass(TEN_MINUTES)
    }
}

impl Plan {
    /// What becomes of the machine with this id, of whatever incarnation.
    pub(super) fn verdict(&self, machine: &str) -> Verdict {
        let found = self.verdicts.iter().find(|(key, _)| key.id.as_str() == machine);
        *found.unwrap_or_else(|| panic!("{machine} was not judged: {self:#?}")).1
    }

    pub(super) fn removed(&self) -> Vec<&str> {
        self.removals.iter().map(|removal| removal.machine.id.as_str()).collect()
    }

    pub(super) fn saw(&self) -> Seen {
        self.seen[&provider("gcp")]
    }
}

/// Of the incarnation that the listed machines have.
pub(super) fn key_of(name: &str) -> MachineKey {
    MachineKey::of(&provider("gcp"), &machine(name, "any"))
}
