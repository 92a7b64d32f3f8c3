//! What the host itself holds or does for a guest is bounded like the guest's own memory and time.

use std::time::Duration;

use egress_proxies_core::provider::{CreateRequest, HostFault, Reason, Secret};
use tokio::time::Instant;

use crate::hostile::{HTTP, SLEEP, sample};
use crate::support::guest::{About, Guest};
use crate::support::image::{Machine, nothing};
use crate::support::recorder::Recorder;
use crate::support::{create_request, machine, start, start_with};
use egress_proxies_wasm::HostConfig;

/// The host keeps the authority for as long as the request lives: refused when it is too long, taken when
/// it is not.
#[tokio::test]
async fn texts_that_the_host_would_keep_have_a_largest_length() {
    let mut guest = Guest { imports: HTTP.into(), ..Guest::default() };
    let (long, fair) = (guest.image.text(&"a".repeat(301)), guest.image.text("api.example.com"));
    let path = guest.image.text(&format!("/{}", "a".repeat(8 * 1024)));
    guest.create = format!(
        "(local $r i32)
         (local.set $r (call $request (call $fields)))
         (if (i32.eqz (call $authority (local.get $r) (i32.const 1) (i32.const {}) (i32.const {}))) (then unreachable))
         (if (i32.eqz (call $path (local.get $r) (i32.const 1) (i32.const {}) (i32.const {}))) (then unreachable))
         (if (call $authority (local.get $r) (i32.const 1) (i32.const {}) (i32.const {})) (then unreachable))
         {}",
        long[0], long[1], path[0], path[1], fair[0], fair[1], guest.create
    );
    let (_started, provider) = sample(&guest, "").await;
    provider.create(&create_request()).await.unwrap();
}

#[tokio::test]
async fn resources_of_a_call_have_a_largest_number() {
    let guest = Guest {
        imports: HTTP.into(),
        create: "(loop $l (drop (call $request (call $fields))) (br $l)) unreachable".into(),
        ..Guest::default()
    };
    let (_started, provider) = sample(&guest, "").await;
    let failure = provider.create(&create_request()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Host(HostFault::Trap), "{failure}");
    assert!(failure.message.contains("1024 requests"), "{failure}");
    assert!(provider.get(&machine()).await.is_ok());
}

/// Seven megabytes of message, twenty thousand secrets: minutes, if each were looked for in all of it.
#[tokio::test]
async fn a_long_message_of_a_call_with_many_secrets_is_short_work() {
    let about = About { bootstrap_max_bytes: 1 << 20, ..About::default() };
    let mut guest = Guest { pages: 160, ..Guest::about(&about) };
    let message = vec![1 << 20, 7 << 20];
    let failure =
        [vec![1, 11, 0, 0], message, vec![0; 2], vec![0], guest.image.option(None), nothing()].concat();
    guest.create = format!("i32.const {}", guest.image.place(&[failure, vec![0; 24]].concat()));
    let (_started, provider) = sample(&guest, "").await;
    let bootstrap = (0..20_000).map(|n| format!("line-{n:07}\n")).collect::<Vec<_>>().concat();
    let request = CreateRequest { bootstrap: Some(Secret::new(bootstrap)), ..create_request() };
    let began = Instant::now();
    let failure = provider.create(&request).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Permanent, "{failure}");
    assert!(failure.message.len() <= 1024 + 3);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn whatever_a_component_says_a_reason_is_one_short_line() {
    let name = format!("acme:door/{}@1.0.0", "lock-".repeat(5_000) + "lock");
    let import = wat::parse_str(format!(r#"(component (import "{name}" (instance)))"#)).unwrap();
    let schema = format!(r#"{{"$ref":"{}\\n"}}"#, "x".repeat(60_000));
    let describing = |about: About<'_>| Guest::about(&about).component();
    let started = start(&[
        ("import", &import, ""),
        ("schema", &describing(About { config_schema: Some(&schema), ..About::default() }), ""),
        ("name", &describing(About { name: &"N\n".repeat(30_000), ..About::default() }), ""),
    ])
    .await;
    for name in ["import", "schema", "name"] {
        let (_, reason) = started.failed(name);
        assert!(
            reason.len() <= 1024 + 3 && !reason.contains(char::is_control),
            "{name}: {} bytes",
            reason.len()
        );
    }
}

#[tokio::test]
async fn a_schema_that_would_never_end_fails_its_provider_and_nobody_else() {
    let mut parts: Vec<String> = (0..40)
        .map(|n| {
            format!(
                r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}}"##,
                n + 1,
                n + 1
            )
        })
        .collect();
    parts.push(r#""d40":{"type":"string"}"#.to_owned());
    let schema = format!(r##"{{"$defs":{{{}}},"$ref":"#/$defs/d0"}}"##, parts.join(","));
    let bad = Guest::about(&About { placement_schema: Some(&schema), ..About::default() }).component();
    let started = start(&[("bad", &bad, ""), ("good", &Guest::default().component(), "")]).await;
    assert_eq!(started.failed("bad").0, "schema");
    assert!(started.ready("good").get(&machine()).await.is_ok());
}

#[tokio::test]
async fn tables_have_a_limit_that_no_config_raises() {
    let guest = Guest {
        functions: "(table $t 1 funcref)".into(),
        create: "(drop (table.grow $t (ref.null func) (i32.const 300000))) unreachable".into(),
        ..Guest::default()
    };
    let (_started, provider) = sample(&guest, "").await;
    let failure = provider.create(&create_request()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Host(HostFault::Memory), "{failure}");
    assert!(
        failure.message.contains("table elements") && !failure.message.contains("memoryMiB"),
        "{failure}"
    );
}

/// They share what was compiled, and not what a call of one of them came to.
#[tokio::test]
async fn instances_of_one_component_fail_by_their_own_limits() {
    let bytes = Guest { pages: 320, ..Guest::default() }.component();
    let rows = [("a", 16), ("b", 128), ("c", 16), ("d", 64)];
    let lines = rows.map(|(_, limit)| format!("limits: {{ memoryMiB: {limit} }}"));
    let entries: Vec<(&str, &[u8], &str)> =
        rows.iter().zip(&lines).map(|((name, _), lines)| (*name, &*bytes, lines.as_str())).collect();
    let started = start(&entries).await;
    for (name, limit) in rows {
        if limit > 20 {
            assert!(started.ready(name).get(&machine()).await.is_ok(), "{name}");
        } else {
            let (stage, reason) = started.failed(name);
            // The second, where the first was done by a neighbour and is shared.
            assert!(["describe", "validate"].contains(&stage), "{stage}");
            assert!(reason.contains("limits.memoryMiB"), "{reason}");
        }
    }
}

#[tokio::test]
async fn each_call_is_recorded_with_what_became_of_it() {
    let recorder = Recorder::default();
    let bad = Guest::default().creating(&Machine { id: b"m 1", ..Machine::default() });
    let guest = Guest {
        imports: SLEEP.into(),
        get: "(call $block (call $after (i64.const 1000000000000))) unreachable".into(),
        ..bad
    };
    let settings = |host| HostConfig { recorder: recorder.shared(), ..host };
    let started = start_with(&[("p", &guest.component(), "")], settings).await;
    let provider = started.ready("p");
    provider.create(&create_request()).await.unwrap_err();
    assert_eq!(recorder.outcomes("create"), ["bad_answer"], "found only when the answer is read");
    // Long enough for the guest's thread to begin it, on a busy machine too.
    tokio::time::timeout(Duration::from_secs(2), provider.get(&machine())).await.unwrap_err();
    for _ in 0..250 {
        if recorder.outcomes("get") == ["cancelled"] {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a call that was dropped was never recorded: {:?}", recorder.outcomes("get"));
}

/// On a busy machine two seconds may be short; that must not be the end of a provider.
#[tokio::test]
async fn a_provider_that_met_a_time_out_while_it_was_loaded_is_tried_again() {
    let recorder = Recorder::default();
    let guest = Guest {
        imports: SLEEP.into(),
        describe: "(call $block (call $after (i64.const 1000000000000))) unreachable".into(),
        ..Guest::default()
    };
    let settings = |host| HostConfig { recorder: recorder.shared(), ..host };
    let started = start_with(&[("p", &guest.component(), "")], settings).await;
    assert_eq!(started.failed("p").0, "describe", "shown meanwhile");
    for _ in 0..600 {
        if recorder.outcomes("describe").len() >= 2 {
            started.host.shutdown(Duration::from_secs(1)).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never tried again: {:?}", recorder.outcomes("describe"));
}
