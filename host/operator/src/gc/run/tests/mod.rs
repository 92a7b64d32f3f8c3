//! The loop over clouds that keep state, with lists that are stale, partial or fail.

mod world;

use std::sync::atomic::Ordering;
use std::time::Duration;

use egress_proxies_core::ids::Incarnation;
use egress_proxies_core::provider::{Failure, Reason};

use self::world::{INTERVAL, World, machine, made, name, no_permit, proxy, uid};
use super::AGAIN;
use crate::gc::{PassOutcome, Removed};

#[tokio::test(start_paused = true)]
async fn the_first_pass_comes_after_a_whole_interval_and_the_second_deletes() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    world.cloud("one").add(machine("living", "u2"));
    world.add_proxy(proxy("u2", "living"));
    let running = world.start(|_| {});
    tokio::time::sleep(INTERVAL.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(world.outcomes.lock().unwrap().len(), 0);
    running.passes(1).await;
    assert_eq!(*world.outcomes.lock().unwrap(), [PassOutcome::Complete]);
    assert_eq!(world.deleted("one"), [""; 0], "once is never enough");
    running.passes(1).await;
    assert_eq!(world.deleted("one"), ["orphan"]);
    running.passes(3).await;
    assert_eq!(world.deleted("one"), ["orphan"], "one delete is enough");
    assert_eq!(*world.removed.lock().unwrap(), [Removed::Deleted]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_looked_at_before_this_process_is_elected() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    let (elect, elected) = tokio::sync::watch::channel(false);
    let running = world.start(|setup| setup.leadership.elected = elected);
    running.passes(5).await;
    assert_eq!(world.proxy_lists.load(Ordering::SeqCst), 0);
    elect.send_replace(true);
    running.passes(2).await;
    assert_eq!(world.deleted("one"), ["orphan"], "the intervals count from the election");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_may_not_act_any_more_deletes_nothing_more() {
    let world = World::new();
    for id in ["a", "b", "c"] {
        world.cloud("one").add(machine(id, id));
    }
    world.leads_for.store(1, Ordering::SeqCst);
    let running = world.start(|_| {});
    running.passes(2).await;
    assert_eq!(world.deleted("one"), ["a"]);
    running.passes(2).await;
    assert_eq!(world.deleted("one"), ["a"]);
    assert_eq!(world.proxy_lists.load(Ordering::SeqCst), 2, "later passes are not even begun");
    let outcomes = world.outcomes.lock().unwrap().clone();
    assert_eq!((outcomes.len(), &outcomes[1..]), (4, &[PassOutcome::NotLeading; 3][..]));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_met_a_pause_of_the_lead_comes_again_soon_after_it() {
    // It begins in the pause; or before it, and fails when the API server is away and may still be its leader's.
    for begins_before in [false, true] {
        let world = World::new();
        world.cloud("one").add(machine("orphan", "u1"));
        let running = world.start(|_| {});
        running.passes(1).await;
        if begins_before {
            world.lists_fail.store(true, Ordering::SeqCst);
            running.passes(1).await;
            world.pauses();
            world.lists_fail.store(false, Ordering::SeqCst);
        } else {
            world.pauses();
            running.passes(1).await;
        }
        assert_eq!(world.deleted("one"), [""; 0]);
        tokio::time::sleep(Duration::from_mins(1)).await;
        world.resumes();
        tokio::time::sleep(AGAIN.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(world.deleted("one"), [""; 0], "the lifecycle goes on first");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.deleted("one"), ["orphan"], "what the pass before the pause saw still counts");
        let passes = world.outcomes.lock().unwrap().len();
        world.pauses();
        world.resumes();
        tokio::time::sleep(AGAIN * 2).await;
        assert_eq!(world.outcomes.lock().unwrap().len(), passes, "that one met no pass");
        running.passes(3).await;
        assert_eq!(world.deleted("one"), ["orphan"]);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_is_held_back_in_a_pause_is_no_failed_one() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    let running = world.start(|_| {});
    running.passes(1).await;
    world.cloud("one").pauses_at_delete = true;
    running.passes(1).await;
    assert_eq!(*world.removed.lock().unwrap(), []);
    assert_eq!(*world.outcomes.lock().unwrap(), [PassOutcome::Complete, PassOutcome::NotLeading]);
    world.resumes();
    running.passes(1).await;
    assert_eq!(world.deleted("one"), ["orphan"]);
    assert_eq!(*world.removed.lock().unwrap(), [Removed::Deleted]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_and_its_machine_made_between_the_two_lists_never_look_abandoned() {
    let world = World::new();
    let running = world.start(|_| {});
    for pass in 0..5 {
        let (id, of) = (format!("m{pass}"), format!("u{pass}"));
        world.between(move |world| {
            // As it is before its status is written.
            let (uid, mut fresh) = proxy(&of, &id);
            fresh.recorded = None;
            world.add_proxy((uid, fresh));
            world.cloud("one").add(machine(&id, &of));
        });
        running.passes(1).await;
        assert_eq!(world.cloud("one").machines.len(), pass + 1, "it was made in the middle of this pass");
        let seen = world.seen.lock().unwrap()[&name("one")].unwrap();
        assert_eq!((seen.owned, seen.orphans, seen.surplus), (pass, 0, 0));
    }
    assert_eq!(world.deleted("one"), [""; 0]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_only_a_stale_list_shows_is_not_deleted() {
    let world = World::new();
    world.cloud("one").stale = Some(vec![machine("gone", "u1")]);
    let running = world.start(|_| {});
    running.passes(2).await;
    assert_eq!(world.deleted("one"), [""; 0]);
    assert_eq!(*world.removed.lock().unwrap(), [Removed::Spared]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_machine_under_the_same_id_is_not_the_one_that_was_listed() {
    let world = World::new();
    let mut anew = machine("m", "u1");
    anew.incarnation = Incarnation::parse("2").ok();
    world.cloud("one").add(anew);
    world.cloud("one").stale = Some(vec![machine("m", "u1")]);
    let running = world.start(|_| {});
    running.passes(4).await;
    assert_eq!(world.deleted("one"), [""; 0]);
    world.cloud("one").stale = None;
    running.passes(2).await;
    let incarnation = world.cloud("one").deleted[0].incarnation.clone();
    assert_eq!(incarnation, Incarnation::parse("2").ok(), "the delete means the one that was seen");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_of_the_proxies_ends_the_pass() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    let running = world.start(|_| {});
    running.passes(1).await;
    world.lists_fail.store(true, Ordering::SeqCst);
    running.passes(5).await;
    assert_eq!(world.deleted("one"), [""; 0]);
    assert_eq!(world.outcomes.lock().unwrap()[1..], [PassOutcome::Failed; 5]);
    world.lists_fail.store(false, Ordering::SeqCst);
    running.passes(1).await;
    assert_eq!(world.deleted("one"), ["orphan"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_or_is_not_ready_stops_nobody() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    world.cloud("two").add(made("other", "u2", "two"));
    let failure = Failure::new(Reason::Transient, "bad gateway");
    world.cloud("one").lists.extend([failure.clone(), failure]);
    let running = world.start(|_| {});
    running.passes(2).await;
    assert_eq!((world.deleted("one").len(), world.deleted("two")), (0, vec!["other".to_owned()]));
    assert_eq!(*world.outcomes.lock().unwrap(), [PassOutcome::Incomplete; 2]);
    assert_eq!(world.seen.lock().unwrap()[&name("one")], None, "what was known of it is out of date");
    running.passes(1).await;
    world.not_ready.lock().unwrap().insert(name("one"));
    running.passes(3).await;
    assert_eq!(world.deleted("one"), [""; 0]);
    world.not_ready.lock().unwrap().clear();
    running.passes(2).await;
    assert_eq!(world.deleted("one"), ["orphan"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_zone_hides_its_machines_and_no_others() {
    let world = World::new();
    world.cloud("one").add(machine("there", "u1"));
    let hidden = machine("hidden", "u2");
    world.cloud("one").unreachable.insert(hidden.id.clone());
    world.cloud("one").add(hidden);
    let running = world.start(|_| {});
    running.passes(3).await;
    assert_eq!(world.deleted("one"), ["there"]);
    assert_eq!(world.outcomes.lock().unwrap()[2], PassOutcome::Incomplete);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_provider_is_asked_again_within_the_pass() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    let running = world.start(|_| {});
    running.passes(1).await;
    world.cloud("one").lists.extend([no_permit(), no_permit(), no_permit()]);
    running.passes(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.deleted("one"), ["orphan"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_a_list_left_out_is_found_by_the_last_look() {
    let world = World::new();
    world.cloud("one").add(machine("m", "u1"));
    let mut shortened = machine("n", "u2");
    shortened.tags.insert("proxy-operator-name".to_owned(), "long-0123456789ab".to_owned());
    world.cloud("one").add(shortened);
    world.add_proxy(proxy("u1", "m"));
    world.add_proxy(proxy("u2", "n"));
    world.unlisted.lock().unwrap().extend([uid("u1"), uid("u2")]);
    let running = world.start(|_| {});
    running.passes(1).await;
    // Where only a list can tell, the second one has to be right.
    world.after_proxies(|world| world.unlisted.lock().unwrap().clear());
    running.passes(1).await;
    assert_eq!(world.deleted("one"), [""; 0]);
    assert_eq!(*world.removed.lock().unwrap(), [Removed::Spared; 2]);
    running.passes(2).await;
    assert_eq!(world.removed.lock().unwrap().len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_look_without_an_answer_leaves_the_machine_to_the_next_pass() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    let running = world.start(|_| {});
    running.passes(1).await;
    world.looks_fail.store(true, Ordering::SeqCst);
    running.passes(1).await;
    world.looks_fail.store(false, Ordering::SeqCst);
    world.cloud("one").gets_fail = true;
    running.passes(1).await;
    assert_eq!(world.deleted("one"), [""; 0]);
    assert_eq!(*world.removed.lock().unwrap(), [Removed::Failed; 2]);
    world.cloud("one").gets_fail = false;
    running.passes(1).await;
    assert_eq!(world.deleted("one"), ["orphan"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_deleted_keeps_no_other_waiting() {
    let world = World::new();
    for id in ["a", "b", "c"] {
        world.cloud("one").add(machine(id, id));
    }
    world.cloud("one").deletes_fail.insert(machine("a", "a").id);
    let running = world.start(|setup| setup.policy.max_deletes = 1);
    running.passes(5).await;
    assert_eq!(world.deleted("one"), ["a", "b", "c", "a"], "one per pass, the refused one again at the end");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_hangs_is_repeated_and_shown_until_the_machine_is_gone() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    world.cloud("one").deletes_hang.insert(machine("orphan", "u1").id);
    let stuck = |world: &World| world.seen.lock().unwrap()[&name("one")].unwrap().stuck;
    let running = world.start(|_| {});
    running.passes(3).await;
    assert_eq!((world.deleted("one").len(), stuck(&world)), (1, 0), "the delete gets a whole interval");
    running.passes(1).await;
    assert_eq!((world.deleted("one").len(), stuck(&world)), (2, 1));
    assert!(world.cloud("one").machines.is_empty(), "the second delete forces it");
    running.passes(1).await;
    assert_eq!((world.deleted("one").len(), stuck(&world)), (2, 0));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_look_waits_for_its_turn_as_the_lists_do() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    let running = world.start(|_| {});
    running.passes(1).await;
    world.cloud("one").gets.extend([no_permit(), no_permit(), no_permit()]);
    running.passes(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.deleted("one"), ["orphan"]);
    assert_eq!(*world.removed.lock().unwrap(), [Removed::Deleted]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_does_all_but_the_delete() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    world.cloud("one").add(machine("living", "u2"));
    world.add_proxy(proxy("u2", "living"));
    let running = world.start(|setup| setup.dry_run = true);
    running.passes(3).await;
    assert_eq!(world.deleted("one"), [""; 0]);
    assert_eq!(*world.removed.lock().unwrap(), [Removed::DryRun; 2], "each pass says it again");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn when_all_proxies_seem_to_be_gone_nothing_is_deleted_and_it_is_said() {
    let world = World::new();
    for number in 0..6 {
        world.cloud("one").add(machine(&format!("m{number}"), &format!("u{number}")));
    }
    world.cloud("two").add(made("other", "u9", "two"));
    let running = world.start(|_| {});
    running.passes(4).await;
    assert_eq!((world.deleted("one").len(), world.deleted("two")), (0, vec!["other".to_owned()]));
    assert!(world.seen.lock().unwrap()[&name("one")].unwrap().suspected);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn told_to_end_it_does_not_wait_for_a_list_or_a_look() {
    let world = World::new();
    world.cloud("one").add(machine("orphan", "u1"));
    let running = world.start(|_| {});
    running.passes(1).await;
    // In the second pass, between the lists and the last look.
    world.after_proxies(|world| world.cloud("one").hangs = true);
    running.passes(1).await;
    running.stop().await;
    assert_eq!(world.deleted("one"), [""; 0]);

    let world = World::new();
    world.cloud("one").hangs = true;
    let running = world.start(|_| {});
    running.passes(1).await;
    running.stop().await;
}
