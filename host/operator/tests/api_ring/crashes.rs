//! Lost answers, and an operator that is stopped after each of its effects: never two machines, never a
//! forgotten one.

use std::sync::Arc;
use std::time::Duration;

use crate::cloud::{Fault, Verb};
use crate::operator::{Bench, Crash, managed, quick};

#[tokio::test]
async fn a_create_whose_answer_is_lost_is_found_again_and_not_repeated() {
    let Some(bench) = Bench::open("lost-answer").await else { return };
    bench.cloud.next(Verb::Create, Fault::LoseAnswer);
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    assert_eq!(bench.cloud.born(), 1);
    assert_eq!(bench.cloud.count(Verb::Create), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_create_that_is_answered_late_holds_up_nobody_else() {
    let Some(bench) = Bench::open("late-answer").await else { return };
    bench.cloud.next(Verb::Create, Fault::Late(Duration::from_secs(4)));
    let operator = bench.operator();
    bench.create("slow", managed()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = tokio::time::Instant::now();
    for name in ["b", "c", "d"] {
        bench.create(name, managed()).await;
    }
    for name in ["b", "c", "d"] {
        bench.until_ready(name).await;
    }
    assert!(started.elapsed() < Duration::from_secs(3), "took {:?}", started.elapsed());
    bench.until_ready("slow").await;
    assert_eq!(bench.cloud.born(), 4);
    operator.stop().await;
}

#[tokio::test]
async fn a_create_that_lands_after_its_reconcile_panicked_is_not_forgotten_by_a_deletion() {
    let Some(bench) = Bench::open("late-machine").await else { return };
    bench.cloud.next(Verb::Create, Fault::PanicAndLand(Duration::from_millis(900)));
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while bench.cloud.landing() == 0 {
        assert!(tokio::time::Instant::now() < deadline, "no create was sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.delete("a").await;
    bench.until_gone("a").await;
    assert_eq!(bench.cloud.landing(), 0, "the finalizer went while a create was under way");
    // A second create may have been sent before the deletion was seen: it is the same machine while both live.
    assert_eq!((bench.cloud.most_at_once(), bench.cloud.machines()), (1, Vec::new()));
    operator.stop().await;
}

#[tokio::test]
async fn an_operator_that_is_told_to_end_waits_for_a_create_and_writes_its_id_down() {
    let Some(bench) = Bench::open("drain").await else { return };
    bench.cloud.next(Verb::Create, Fault::Late(Duration::from_secs(2)));
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while bench.cloud.count(Verb::Create) == 0 {
        assert!(tokio::time::Instant::now() < deadline, "no create was sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    operator.stop().await;
    let status = bench.get("a").await.unwrap().status.unwrap_or_default();
    assert!(status.provider_id.is_some(), "the answer of the create was lost: {status:?}");
    assert_eq!(bench.cloud.born(), 1);
}

#[tokio::test]
async fn an_operator_stopped_after_any_effect_ends_with_one_machine_and_then_with_none() {
    let Some(bench) = Bench::open("crashes").await else { return };
    for effects in 1.. {
        let name = format!("a{effects}");
        let born = bench.cloud.born();
        let crash = Crash::after(effects);
        let first = bench.operator_with(quick(), Arc::clone(&crash));
        bench.create(&name, managed()).await;
        let crashed = tokio::select! {
            () = crash.happened() => true,
            () = life(&bench, &name) => false,
        };
        drop(first);
        if crashed {
            let second = bench.operator();
            life(&bench, &name).await;
            second.stop().await;
        }
        assert_eq!(bench.cloud.born() - born, 1, "machines made with a crash after {effects} effects");
        assert_eq!(bench.cloud.machines(), [], "left over with a crash after {effects} effects");
        if !crashed {
            assert!(effects > 5, "a life has at least five effects");
            return;
        }
    }
}

/// From wherever it is to Ready, then deleted until it is gone.
async fn life(bench: &Bench, name: &str) {
    let deleting = bench.get(name).await.is_none_or(|proxy| proxy.metadata.deletion_timestamp.is_some());
    if !deleting {
        bench.until_ready(name).await;
        bench.delete(name).await;
    }
    bench.until_gone(name).await;
}
