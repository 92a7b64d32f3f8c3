//! Guests that misbehave, one per test: each ends with its own reason, and the next call on the same
//! instance works as if nothing had happened.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::support::guest::{About, Guest};
use crate::support::image::{Machine, nothing};
use crate::support::{Started, create_request, machine, start};
use egress_proxies_core::provider::{Failure, HostFault, Observation, Provider, Reason};

/// Small bounds, so that tests are quick.
const SMALL: &str = "limits: { memoryMiB: 16, cpuMs: 200, concurrency: 2 }";

pub(crate) async fn sample(guest: &Guest, lines: &str) -> (Started, Arc<dyn Provider>) {
    let started = start(&[("p", &guest.component(), lines)]).await;
    let provider = started.ready("p");
    (started, provider)
}

/// `create` of this guest fails so, and `get` works afterwards.
async fn create_fails(guest: Guest, lines: &str) -> Failure {
    let (started, provider) = sample(&guest, lines).await;
    let failure = provider.create(&create_request()).await.expect_err("create must fail");
    let seen = provider.get(&machine()).await.expect("the next call works");
    assert!(matches!(seen, Observation::Found(_)));
    started.host.shutdown(Duration::from_secs(5)).await;
    failure
}

async fn assert_fault(guest: Guest, fault: HostFault, words: &[&str]) {
    let failure = create_fails(guest, SMALL).await;
    assert_eq!(failure.reason, Reason::Host(fault), "{}", failure.message);
    for word in words {
        assert!(failure.message.contains(word), "{}", failure.message);
    }
}

fn with_create(body: &str) -> Guest {
    Guest { create: body.to_owned(), ..Guest::default() }
}

#[tokio::test]
async fn endless_loops_on_every_thread_end_at_their_cpu_budget_and_others_go_on_meanwhile() {
    let guest = with_create("(loop $l (br $l)) unreachable");
    let (_started, provider) = sample(&guest, "limits: { memoryMiB: 16, cpuMs: 3000, concurrency: 4 }").await;
    let request = create_request();
    let spin = async {
        let failure = provider.create(&request).await.unwrap_err();
        assert_eq!(failure.reason, Reason::Host(HostFault::Cpu), "{}", failure.message);
        assert!(failure.message.contains("limits.cpuMs"), "{}", failure.message);
        Instant::now()
    };
    let other = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(provider.get(&machine()).await.is_ok());
        Instant::now()
    };
    let began = Instant::now();
    // As many as the guests have threads.
    let (first, second, asked) = tokio::join!(spin, async { spin_again(&*provider).await }, other);
    assert!(asked < first.min(second), "the other call waited for a loop to end");
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
    assert!(provider.get(&machine()).await.is_ok());
}

async fn spin_again(provider: &dyn Provider) -> Instant {
    provider.create(&create_request()).await.unwrap_err();
    Instant::now()
}

#[tokio::test]
async fn a_loop_in_the_allocator_ends_at_the_cpu_budget_too() {
    let guest = Guest { realloc: "(loop $l (br $l)) unreachable".into(), ..Guest::default() };
    let started = start(&[("p", &guest.component(), SMALL)]).await;
    let (stage, reason) = started.failed("p");
    // Its config is passed through the allocator, so it does not even become ready.
    assert_eq!(stage, "validate", "{reason}");
    assert!(reason.contains("CPU budget"), "{reason}");
}

#[tokio::test]
async fn a_growing_memory_ends_at_its_limit() {
    assert_fault(
        with_create("(loop $l (drop (memory.grow (i32.const 16))) (br $l)) unreachable"),
        HostFault::Memory,
        &["limits.memoryMiB"],
    )
    .await;
}

#[tokio::test]
async fn a_trap_is_a_fault_of_the_guest() {
    assert_fault(with_create("unreachable"), HostFault::Trap, &["trapped", "unreachable"]).await;
}

#[tokio::test]
async fn a_deep_recursion_is_a_trap() {
    let guest = Guest {
        functions: "(func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))"
            .into(),
        ..with_create("(call $deep (i32.const 0))")
    };
    assert_fault(guest, HostFault::Trap, &["stack"]).await;
}

#[tokio::test]
async fn an_answer_outside_of_memory_breaks_the_contract() {
    assert_fault(with_create("i32.const 0x7ffffff0"), HostFault::BadAnswer, &["create"]).await;
}

#[tokio::test]
async fn an_answer_with_an_unknown_case_breaks_the_contract() {
    let mut guest = Guest::default();
    guest.create = format!("i32.const {}", guest.image.place(&[[7].to_vec(), vec![0; 40]].concat()));
    assert_fault(guest, HostFault::BadAnswer, &[]).await;
}

#[tokio::test]
async fn text_that_is_no_utf8_breaks_the_contract() {
    assert_fault(
        Guest::default().creating(&Machine { id: b"m-\xff\xfe", ..Machine::default() }),
        HostFault::BadAnswer,
        &[],
    )
    .await;
}

#[tokio::test]
async fn a_string_of_nine_megabytes_is_not_copied() {
    let mut guest = Guest { pages: 160, ..Guest::default() };
    let mut words = Machine::default().words(&mut guest.image);
    words[0] = 65_536;
    words[1] = 9 << 20;
    guest.create = format!("i32.const {}", guest.image.place(&[vec![0], words].concat()));
    assert_fault(guest, HostFault::BadAnswer, &["8 MiB"]).await;
}

#[tokio::test]
async fn ids_are_checked() {
    let long = vec![b'x'; 100_000];
    for id in [&b"m\x001"[..], b"", b"m 1", &long] {
        let guest = Guest::default().creating(&Machine { id, ..Machine::default() });
        assert_fault(guest, HostFault::BadAnswer, &["instance id"]).await;
    }
    let guest = Guest::default().creating(&Machine { incarnation: Some(""), ..Machine::default() });
    assert_fault(guest, HostFault::BadAnswer, &["incarnation"]).await;
}

#[tokio::test]
async fn an_address_that_is_none_breaks_the_contract() {
    for address in ["not an address", "[::1]", "fe80::1%eth0", "127.1", "a/b", "user@host"] {
        let guest = Guest::default().creating(&Machine { address: Some(address), ..Machine::default() });
        assert_fault(guest, HostFault::BadAnswer, &["address"]).await;
    }
}

#[tokio::test]
async fn an_address_outside_of_its_networks_is_left_out_and_said() {
    for (address, lines, kept, word) in [
        ("10.1.2.3", "", false, "addressCidrs: [10.1.2.3/32]"),
        ("10.1.2.3", "addressCidrs: [10.0.0.0/8]", true, ""),
        ("169.254.169.254", "addressCidrs: [10.0.0.0/8]", false, "metadata"),
        ("127.0.0.1", "addressCidrs: [10.0.0.0/8]", false, "not public"),
        ("localhost", "", false, "local name"),
        ("proxy.example.com", "", true, ""),
    ] {
        let guest = Guest::default().creating(&Machine { address: Some(address), ..Machine::default() });
        let (_started, provider) = sample(&guest, lines).await;
        let made = provider.create(&create_request()).await.unwrap();
        assert_eq!(!made.endpoints.is_empty(), kept, "{address}");
        let said = made.problem.map(|problem| problem.message).unwrap_or_default();
        assert!(said.contains(word), "{address}: {said}");
        assert_eq!(said.is_empty(), kept, "{address}: {said}");
    }
}

#[tokio::test]
async fn a_machine_without_our_tags_is_not_taken_for_ours() {
    let foreign = [("proxy-operator-uid", "other"), ("proxy-operator-cluster", "c-1")];
    let guest = Guest::default().creating(&Machine { tags: &foreign, ..Machine::default() });
    assert_fault(guest, HostFault::BadAnswer, &["proxy-operator-uid", "name-taken"]).await;
}

#[tokio::test]
async fn get_must_be_about_the_machine_that_was_asked_for() {
    for (id, incarnation, word) in [
        (&b"m-2"[..], Some("i-1"), "m-2"),
        (b"m-1", Some("i-2"), "i-2"),
        (b"m-1", None, "a machine that has none"),
    ] {
        let mut guest = Guest::default();
        let words = Machine { id, incarnation, ..Machine::default() }.words(&mut guest.image);
        guest.get = format!("i32.const {}", guest.image.place(&[vec![0, 0], words].concat()));
        let (_started, provider) = sample(&guest, "").await;
        let failure = provider.get(&machine()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::Host(HostFault::BadAnswer));
        assert!(failure.message.contains(word), "{}", failure.message);
        assert!(provider.create(&create_request()).await.is_ok());
    }
}

pub(crate) const SLEEP: &str = r#"(import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $after (param i64) (result i32)))
  (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))"#;

#[cfg(test)]
fn with_create_that_sleeps() -> Guest {
    Guest {
        imports: SLEEP.into(),
        create: "(call $block (call $after (i64.const 1000000000000))) unreachable".into(),
        ..Guest::default()
    }
}

#[tokio::test]
async fn a_sleeper_ends_at_the_deadline_and_the_next_call_gets_its_turn() {
    let guest = Guest {
        imports: SLEEP.into(),
        validate_create: "(call $block (call $after (i64.const 1000000000000))) unreachable".into(),
        ..Guest::default()
    };
    let (_started, provider) = sample(&guest, "limits: { concurrency: 1 }").await;
    let began = Instant::now();
    let request = create_request();
    let sleeper = async { (provider.validate_create(&request).await.unwrap_err(), Instant::now()) };
    let others = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(provider.delete(&machine()).await.is_ok(), "deletes have permits of their own");
        let deleted = Instant::now();
        assert!(provider.get(&machine()).await.is_ok());
        (deleted, Instant::now())
    };
    let ((failure, failed), (deleted, got)) = tokio::join!(sleeper, others);
    assert_eq!(failure.reason, Reason::Host(HostFault::Deadline), "{}", failure.message);
    assert!(deleted < failed, "a delete waits for nobody");
    // The turn is free a moment before the sleeper's caller hears of its end.
    assert!(got + Duration::from_millis(100) > failed, "it had to wait");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(provider.get(&machine()).await.is_ok());
}

#[tokio::test]
async fn a_call_does_not_wait_for_its_turn_for_ever() {
    let guest = with_create_that_sleeps();
    let (_started, provider) = sample(&guest, "limits: { concurrency: 1 }").await;
    let request = create_request();
    let asks = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let asked = Instant::now();
        let failure = provider.get(&machine()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::Host(HostFault::NoPermit), "{}", failure.message);
        assert!(asked.elapsed() < Duration::from_secs(7), "{:?}", asked.elapsed());
    };
    tokio::select! {
        made = provider.create(&request) => panic!("{made:?}"),
        () = asks => {}
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_gives_its_permit_back() {
    let guest = with_create_that_sleeps();
    let (_started, provider) = sample(&guest, "limits: { concurrency: 1 }").await;
    let request = create_request();
    tokio::time::timeout(Duration::from_millis(200), provider.create(&request)).await.unwrap_err();
    for _ in 0..100 {
        if provider.get(&machine()).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the permit was never given back");
}

#[tokio::test]
async fn a_stopping_host_waits_and_then_cuts_off() {
    let guest = with_create_that_sleeps();
    let (started, provider) = sample(&guest, "").await;
    let began = Instant::now();
    let request = create_request();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        started.host.shutdown(Duration::from_millis(100)).await;
    };
    let (failure, ()) = tokio::join!(provider.create(&request), stop);
    assert!(failure.unwrap_err().message.contains("shutting down"));
    let late = provider.get(&machine()).await.unwrap_err();
    assert!(late.message.contains("shutting down"), "{late}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// A request to https://api.example.com/, whose outcome the guest does not even look at.
pub(crate) const HTTP: &str = r#"(import "wasi:http/types@0.2.12" "[constructor]fields" (func $fields (result i32)))
  (import "wasi:http/types@0.2.12" "[constructor]outgoing-request" (func $request (param i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-authority" (func $authority (param i32 i32 i32 i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-path-with-query" (func $path (param i32 i32 i32 i32) (result i32)))
  (import "wasi:http/outgoing-handler@0.2.12" "handle" (func $handle (param i32 i32 i32 i32)))
  (import "wasi:http/types@0.2.12" "[method]future-incoming-response.subscribe" (func $subscribe (param i32) (result i32)))
  (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))"#;

fn fetching(mut guest: Guest) -> (Guest, String) {
    let (host, path) = (guest.image.text("api.example.com"), guest.image.text("/v1/things?token=x"));
    guest.imports = HTTP.into();
    guest.functions = format!(
        "(func $fetch (local $r i32)
           (local.set $r (call $request (call $fields)))
           (drop (call $authority (local.get $r) (i32.const 1) (i32.const {}) (i32.const {})))
           (drop (call $path (local.get $r) (i32.const 1) (i32.const {}) (i32.const {})))
           (call $handle (local.get $r) (i32.const 0) (i32.const 0) (i32.const 131072))
           (call $block (call $subscribe (i32.load (i32.const 131080)))))",
        host[0], host[1], path[0], path[1]
    );
    (guest, "(call $fetch)".to_owned())
}

#[tokio::test]
async fn a_request_that_is_not_granted_is_the_outcome_whatever_the_guest_says() {
    let (mut guest, fetch) = fetching(Guest::default());
    guest.create = format!("{fetch} {}", guest.create);
    let failure = create_fails(guest, "").await;
    assert_eq!(failure.reason, Reason::Denied);
    let line = r#"egress: [{ origin: "https://api.example.com", methods: [GET], pathPrefix: /v1/things, auth: none }]"#;
    assert!(failure.message.contains(line), "{}", failure.message);
    assert!(!failure.message.contains("token"), "{}", failure.message);
}

#[tokio::test]
async fn validation_has_no_network() {
    let (mut guest, fetch) = fetching(Guest::default());
    guest.validate_create = format!("{fetch} {}", guest.validate_create);
    let lines = "egress: [{ origin: \"https://api.example.com\", methods: [GET] }]";
    let (_started, provider) = sample(&guest, lines).await;
    let failure = provider.validate_create(&create_request()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Denied);
    assert!(failure.message.contains("without the network"), "{}", failure.message);
    assert!(provider.get(&machine()).await.is_ok());
}

#[tokio::test]
async fn a_flood_of_log_lines_is_cut_off_and_counted() {
    let lines = crate::support::lines::listen();
    let mut guest = Guest {
        imports: r#"(import "egress-proxies:provider/host-log@0.1.0" "emit" (func $emit (param i32 i32 i32 i32 i32)))"#.into(),
        ..Guest::default()
    };
    let text = guest.image.text("line\u{1b}[31m\nand another");
    guest.create = format!(
        "(local $n i32) (loop $l
           (call $emit (i32.const 1) (i32.const {}) (i32.const {}) (i32.const 0) (i32.const 0))
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (br_if $l (i32.lt_u (local.get $n) (i32.const 2000)))) {}",
        text[0], text[1], guest.create
    );
    let started = start(&[("flood", &guest.component(), "")]).await;
    assert!(started.ready("flood").create(&create_request()).await.is_ok());
    let lines = lines.of("flood");
    let written = lines.iter().filter(|line| line.contains("line [31m and another")).count();
    assert_eq!(written, 200, "{:?}", lines.first());
    let dropped =
        lines.iter().filter(|line| line.contains("too many lines") && line.contains("dropped=1800"));
    assert_eq!(dropped.count(), 1, "{:?}", lines.last());
}

#[tokio::test]
async fn secrets_of_a_request_do_not_come_back_in_a_failure() {
    use egress_proxies_core::provider::Secret;
    let mut guest = Guest::default();
    // result<instance, failure>: permanent, with a message that quotes the bootstrap.
    let message = guest.image.text("upstream said: bad key hunter2-hunter2-hunter2\nretry");
    let failure = [
        vec![1, 11, 0, 0],
        message,
        vec![1, 10],
        vec![1 | (409 << 16)],
        guest.image.option(Some("E\u{7}1")),
        nothing(),
    ]
    .concat();
    guest.create = format!("i32.const {}", guest.image.place(&[failure, vec![0; 24]].concat()));
    let (_started, provider) = sample(&guest, "").await;
    let request = egress_proxies_core::provider::CreateRequest {
        bootstrap: Some(Secret::new("hunter2-hunter2-hunter2".into())),
        ..create_request()
    };
    let failure = provider.create(&request).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Permanent);
    assert_eq!(failure.message, "upstream said: bad key *** retry");
    assert_eq!(failure.retry_after, Some(Duration::from_secs(1)), "clamped");
    assert_eq!((failure.upstream_status, failure.upstream_code.as_deref()), (Some(409), Some("E 1")));
}

#[tokio::test]
async fn a_call_that_was_throttled_holds_up_the_others_of_its_provider() {
    let mut guest = Guest::default();
    // result<instance, failure>: throttled, for 20 s.
    let message = guest.image.text("too many requests");
    let failure = [vec![1, 1, 0, 0], message, vec![1, 20_000], vec![0; 30]].concat();
    guest.create = format!("i32.const {}", guest.image.place(&failure));
    let (_started, provider) = sample(&guest, "").await;
    assert!(provider.get(&machine()).await.is_ok());
    let failure = provider.create(&create_request()).await.unwrap_err();
    let asked = Some(Duration::from_secs(20));
    assert_eq!((failure.reason, failure.retry_after), (Reason::Throttled, asked));
    let began = Instant::now();
    let failure = provider.get(&machine()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Host(HostFault::NoPermit), "{failure}");
    assert!(failure.message.contains("throttled") && failure.retry_after <= asked, "{failure:?}");
    assert!(failure.retry_after > Some(Duration::from_secs(15)), "{failure:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "it waits for nothing: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_document_is_checked_before_the_guest_sees_it() {
    let about = About {
        placement_schema: Some(
            r#"{"type":"object","properties":{"zone":{"type":"string"}},"additionalProperties":false}"#,
        ),
        ..About::default()
    };
    let guest =
        Guest { validate_create: "unreachable".into(), create: "unreachable".into(), ..Guest::about(&about) };
    let (_started, provider) = sample(&guest, "").await;
    let mut request = create_request();
    request.placement.insert("zone".into(), 3.into());
    for failure in
        [provider.validate_create(&request).await.unwrap_err(), provider.create(&request).await.unwrap_err()]
    {
        assert_eq!(failure.reason, Reason::Invalid("/placement/zone".into()));
        assert!(failure.message.starts_with("spec.placement.zone: "), "{}", failure.message);
    }
    request.placement.clear();
    request.bootstrap = Some(egress_proxies_core::provider::Secret::new("x".repeat(1025)));
    let failure = provider.validate_create(&request).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Invalid("/bootstrap".into()));
    assert!(
        failure.message.contains("1025 bytes") && failure.message.contains("at most 1024"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn a_provider_in_mode_delete_only_makes_nothing_and_deletes() {
    let (_started, provider) = sample(&Guest::default(), "mode: deleteOnly").await;
    let failure = provider.create(&create_request()).await.unwrap_err();
    assert!(failure.message.contains("deleteOnly"), "{}", failure.message);
    assert!(provider.delete(&machine()).await.is_ok());
    assert!(provider.list_owned(&crate::support::owner()).await.is_ok());
}
