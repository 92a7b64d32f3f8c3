//! What is handed out, in which order, and to whom.

use super::*;

fn key(name: &str) -> ProxyKey {
    ProxyKey::new("default", name)
}

fn at(seconds: u64) -> Moment {
    Moment::after_start(Duration::from_secs(seconds))
}

#[test]
fn a_key_is_queued_once_and_the_earliest_time_wins() {
    let queue = Queue::default();
    queue.add(key("a"), at(60));
    queue.add(key("a"), at(5));
    queue.add(key("a"), at(90));
    assert_eq!(queue.take(at(0)), Taken::Wait(Duration::from_secs(5)));
    assert_eq!(queue.take(at(5)), Taken::Key(key("a")));
    queue.done(&key("a"), None);
    assert_eq!(queue.take(at(100)), Taken::Empty);
}

#[test]
fn a_key_is_never_worked_on_twice_at_once_and_comes_again_afterwards() {
    let queue = Queue::default();
    queue.add(key("a"), at(0));
    assert_eq!(queue.take(at(0)), Taken::Key(key("a")));
    queue.add(key("a"), at(1));
    assert_eq!(queue.take(at(2)), Taken::Empty);
    assert_eq!(queue.depth(), (0, 1));
    queue.done(&key("a"), Some(at(60)));
    assert_eq!(queue.depth(), (1, 0));
    assert_eq!(queue.take(at(2)), Taken::Key(key("a")));
}

#[test]
fn different_keys_are_handed_out_at_once() {
    let queue = Queue::default();
    for name in ["a", "b", "c"] {
        queue.add(key(name), at(0));
    }
    for name in ["a", "b", "c"] {
        assert_eq!(queue.take(at(0)), Taken::Key(key(name)));
    }
    assert_eq!(queue.take(at(0)), Taken::Empty);
}

#[test]
fn what_is_due_is_spread_in_its_order_and_a_change_still_moves_a_key_forward() {
    let queue = Queue::default();
    for (name, second) in [("a", 3), ("b", 1), ("c", 2), ("later", 60)] {
        queue.add(key(name), at(second));
    }
    queue.spread(at(10), Duration::from_secs(5));
    assert_eq!(queue.depth(), (4, 0));
    assert_eq!(queue.take(at(10)), Taken::Key(key("b")));
    assert_eq!(queue.take(at(10)), Taken::Wait(Duration::from_secs(5)));
    queue.add(key("a"), at(11));
    assert_eq!(queue.take(at(11)), Taken::Key(key("a")));
    assert_eq!(queue.take(at(14)), Taken::Wait(Duration::from_secs(1)));
    assert_eq!(queue.take(at(15)), Taken::Key(key("c")));
    assert_eq!(queue.take(at(15)), Taken::Wait(Duration::from_secs(45)));
}

#[test]
fn what_was_begun_goes_first_and_news_has_every_fourth_turn() {
    let queue = Queue::default();
    for name in ["a", "b", "c", "d", "e"] {
        queue.add(key(name), at(0));
        assert_eq!(queue.take(at(0)), Taken::Key(key(name)));
        queue.done(&key(name), Some(at(3)));
    }
    for name in ["x", "y", "z"] {
        queue.add(key(name), at(1));
    }
    queue.add_to(Lane::Begun, None, key("b"), at(2));
    let taken = std::iter::from_fn(|| match queue.take(at(3)) {
        Taken::Key(key) => Some(key.name),
        Taken::Wait(_) | Taken::Empty => None,
    });
    assert_eq!(taken.collect::<Vec<_>>(), ["b", "a", "c", "x", "d", "e", "y", "z"]);
    assert_eq!(queue.take(at(3)), Taken::Empty);
}

#[test]
fn news_does_not_delay_what_was_begun_nor_does_it_wait_for_that() {
    let queue = Queue::default();
    for name in ["a", "b", "c", "d"] {
        queue.add(key(name), at(1));
    }
    queue.add_to(Lane::Begun, None, key("d"), at(2));
    queue.add_to(Lane::Begun, None, key("e"), at(60));
    queue.add(key("e"), at(3));
    assert_eq!(queue.depth(), (5, 0));
    assert_eq!(queue.take(at(0)), Taken::Wait(Duration::from_secs(1)));
    let taken = std::iter::from_fn(|| match queue.take(at(4)) {
        Taken::Key(key) => Some(key.name),
        Taken::Wait(_) | Taken::Empty => None,
    });
    assert_eq!(taken.collect::<Vec<_>>(), ["d", "a", "b", "c", "e"]);
    assert_eq!(queue.take(at(99)), Taken::Empty, "each once");
    queue.add(key("d"), at(99));
    queue.done(&key("d"), Some(at(100)));
    queue.add(key("f"), at(98));
    assert_eq!(queue.take(at(98)), Taken::Key(key("f")));
    assert_eq!(queue.take(at(100)), Taken::Key(key("d")));
    assert_eq!(queue.take(at(999)), Taken::Empty);
}

#[tokio::test]
async fn a_change_while_nobody_waits_is_not_lost() {
    let queue = Queue::default();
    queue.add(key("a"), at(0));
    queue.changed().await;
    queue.done(&key("a"), None);
    queue.changed().await;
}

/// A key of this provider, which names it.
fn of(provider: &str, number: usize) -> (Whose, ProxyKey) {
    (ProviderName::parse(provider).ok(), ProxyKey::new(provider, number.to_string()))
}

fn plan(queue: &Queue, lane: Lane, provider: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let (whose, key) = of(provider, number);
        queue.add_to(lane, whose, key, at(0));
    }
}

/// Of which providers what is handed out now is.
fn taken(queue: &Queue, now: Moment) -> Vec<ProxyKey> {
    let next = std::iter::from_fn(|| match queue.take(now) {
        Taken::Key(key) => Some(key),
        Taken::Wait(_) | Taken::Empty => None,
    });
    next.collect()
}

fn count(keys: &[ProxyKey], provider: &str) -> usize {
    keys.iter().filter(|key| key.namespace == provider).count()
}

#[test]
fn one_that_hangs_has_no_more_than_its_share_and_another_is_served_at_once() {
    for lane in [Lane::News, Lane::Begun] {
        let queue = Queue::shared(128);
        plan(&queue, lane, "slow", 0..1000);
        assert_eq!(count(&taken(&queue, at(0)), "slow"), 96);
        assert_eq!(queue.take(at(1)), Taken::Empty, "what has no room wakes nobody");
        plan(&queue, lane, "quick", 0..5);
        assert_eq!(taken(&queue, at(1)), (0..5).map(|number| of("quick", number).1).collect::<Vec<_>>());
        for number in 0..5 {
            queue.done(&of("quick", number).1, Some(at(3)));
        }
        assert_eq!(queue.take(at(1)), Taken::Wait(Duration::from_secs(2)));
        assert_eq!(count(&taken(&queue, at(3)), "quick"), 5, "what follows is served like what is new");
        assert_eq!(queue.depth(), (904, 101));
    }
}

#[test]
fn a_place_that_becomes_free_goes_to_the_one_that_has_waited_longest_and_has_room() {
    let queue = Queue::shared(8);
    plan(&queue, Lane::News, "slow", 0..20);
    let slow = taken(&queue, at(0));
    assert_eq!(slow.len(), 6);
    plan(&queue, Lane::News, "quick", 0..20);
    assert_eq!(count(&taken(&queue, at(1)), "quick"), 2);
    queue.done(&slow[0], None);
    assert_eq!(taken(&queue, at(2)), [of("quick", 10).1], "slow has 5, one was free");
    queue.done(&of("quick", 0).1, None);
    assert_eq!(taken(&queue, at(2)), [of("quick", 11).1]);
    for key in &slow[1..4] {
        queue.done(key, None);
    }
    let more = taken(&queue, at(3));
    assert_eq!(more.len(), 3, "none is left free while somebody has room: {more:?}");
}

#[test]
fn a_key_counts_for_whom_it_was_planned_last() {
    let queue = Queue::shared(4);
    plan(&queue, Lane::News, "one", 0..5);
    let (_, key) = of("one", 0);
    assert_eq!(queue.take(at(0)), Taken::Key(key.clone()));
    queue.add_to(Lane::News, of("two", 0).0, key.clone(), at(1));
    queue.done(&key, Some(at(2)));
    assert_eq!(taken(&queue, at(0)).len(), 3, "the first has no more room");
    assert_eq!(queue.take(at(0)), Taken::Wait(Duration::from_secs(1)), "it is another's now, who has");
    assert_eq!(queue.take(at(1)), Taken::Key(key));
}

#[test]
fn the_longest_wait_is_that_of_the_key_that_is_due_first() {
    let queue = Queue::shared(4);
    assert_eq!(queue.longest_wait(at(9)), Duration::ZERO);
    queue.add(key("later"), at(60));
    assert_eq!(queue.longest_wait(at(9)), Duration::ZERO, "it is not due");
    plan(&queue, Lane::Begun, "slow", 0..9);
    assert_eq!(taken(&queue, at(0)).len(), 3);
    assert_eq!(queue.longest_wait(at(9)), Duration::from_secs(9));
    assert_eq!(queue.longest_wait(at(70)), Duration::from_secs(70));
}
