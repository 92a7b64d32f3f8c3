//! Each call has a fresh instance, though calls take turns at the same room for memories and tables.

use egress_proxies_core::provider::{HostFault, Reason};

use crate::hostile::sample;
use crate::support::guest::Guest;
use crate::support::{create_request, machine, start};

/// Traps if it finds anything where `LEAVES` writes.
const LOOKS: &str = "
    (if (i32.ne (memory.size) (i32.const 8)) (then unreachable))
    (if (i32.load (i32.const 200000)) (then unreachable))
    (if (i32.load (i32.const 524000)) (then unreachable))
    (if (i32.ne (i32.load (i32.const 208000)) (i32.const 0x64636261)) (then unreachable))
    (if (global.get $left) (then unreachable))
    (if (i32.eqz (ref.is_null (table.get $table (i32.const 3)))) (then unreachable))
    (if (ref.is_null (table.get $table (i32.const 0))) (then unreachable))";

const LEAVES: &str = "
    (i32.store (i32.const 200000) (i32.const 7))
    (i32.store (i32.const 524000) (i32.const 7))
    (i32.store (i32.const 208000) (i32.const 7))
    (global.set $left (i32.const 7))
    (table.set $table (i32.const 3) (ref.func $own))
    (table.set $table (i32.const 0) (ref.null func))
    (if (i32.lt_s (memory.grow (i32.const 4)) (i32.const 0)) (then unreachable))
    (i32.store (i32.const 600000) (i32.const 7))";

fn leaving() -> Guest {
    let guest = Guest::default();
    Guest {
        functions: r#"(data (i32.const 208000) "abcd")
            (global $left (mut i32) (i32.const 0))
            (table $table 4 funcref)
            (elem (table $table) (i32.const 0) func $own)
            (func $own)"#
            .into(),
        create: format!("{LOOKS} {LEAVES} unreachable"),
        get: format!("{LOOKS} {LEAVES} {}", guest.get),
        ..guest
    }
}

#[tokio::test]
async fn nothing_of_one_call_is_left_for_the_next() {
    let (_started, provider) = sample(&leaving(), "").await;
    for _ in 0..40 {
        provider.get(&machine()).await.unwrap();
        // A call that ends in the middle leaves as little.
        let failure = provider.create(&create_request()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::Host(HostFault::Trap), "{failure}");
    }
}

#[tokio::test]
async fn nothing_of_one_call_is_left_for_calls_beside_it() {
    let (_started, provider) = sample(&leaving(), "limits: { memoryMiB: 16, concurrency: 8 }").await;
    for _ in 0..10 {
        let machine = machine();
        let calls = (0..16).map(|_| provider.get(&machine));
        for answer in futures::future::join_all(calls).await {
            answer.unwrap();
        }
    }
}

#[tokio::test]
async fn more_memories_or_tables_than_a_call_may_have_fail_the_provider() {
    let of = |what: &str, count| Guest { functions: what.repeat(count), ..Guest::default() }.component();
    // Each guest has a memory of its own besides.
    let (memories, fair) = (of("(memory 1)\n", 16), of("(table 1 funcref)\n", 16));
    let tables = of("(table 1 funcref)\n", 17);
    let started = start(&[("memories", &memories, ""), ("tables", &tables, ""), ("fair", &fair, "")]).await;
    for (name, words) in [("memories", "memor"), ("tables", "table")] {
        let (stage, reason) = started.failed(name);
        assert_eq!(stage, "audit", "before anything is compiled: {reason}");
        assert!(reason.contains(words) && reason.contains("16"), "{reason}");
    }
    assert!(started.ready("fair").get(&machine()).await.is_ok());
}
