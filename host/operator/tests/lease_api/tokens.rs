//! Who may call, and what an open API gives away.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use egress_proxies_core::provider::Secret;
use egress_proxies_operator::http::{TokenSources, Tokens};
use http::Request;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::faults::Log;
use crate::world::{TOKEN, World, credentials, proxy, with};

fn one(token: &str) -> TokenSources {
    TokenSources { token: Some(Secret::new(token.to_owned())), file: None }
}

fn from_file(path: &Path) -> TokenSources {
    TokenSources { token: None, file: Some(path.to_owned()) }
}

async fn status(world: &World, headers: &[&str]) -> u16 {
    let mut request = Request::get("/v1/proxies");
    for value in headers {
        request = request.header("authorization", *value);
    }
    world.send(request.body(Body::empty()).unwrap()).await.status.as_u16()
}

#[tokio::test]
async fn only_a_configured_token_lets_in() {
    let world = World::with_tokens([proxy("p")], one(TOKEN)).await;
    let right = format!("Bearer {TOKEN}");
    let rows: [(&[&str], u16); 10] = [
        (&[&right], 200),
        (&[&format!("bearer  {TOKEN}")], 200),
        (&[], 401),
        (&[""], 401),
        (&["Bearer"], 401),
        (&["Bearer "], 401),
        (&["Bearer wrong"], 401),
        (&[&format!("Bearer {TOKEN}x")], 401),
        (&[&format!("Basic {TOKEN}")], 401),
        (&[&right, &right], 401),
    ];
    for (headers, expected) in rows {
        assert_eq!(status(&world, headers).await, expected, "{headers:?}");
    }
    let refused = world.get("/v1/proxies").await;
    assert_eq!(refused.error(), (401, "unauthorized".to_owned()));
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    assert!(!refused.text.contains(TOKEN));
}

#[tokio::test]
async fn health_and_the_description_are_open_and_nothing_else_is() {
    let world = World::with_tokens([proxy("p")], one(TOKEN)).await;
    assert_eq!(world.get("/healthz").await.text, "ok");
    assert_eq!(world.get("/openapi.json").await.status, 200);
    for path in ["/v1/proxies", "/v1/proxies/default/p", "/healthz/", "/nope", "//healthz"] {
        assert_eq!(world.get(path).await.status, 401, "{path}");
    }
    for (path, body) in [("/v1/leases", "{}"), ("/v1/leases/x/report", "{}"), ("/v1/leases/x/renew", "{}")] {
        assert_eq!(world.post(path, body).await.status, 401, "{path}");
    }
    assert_eq!(world.delete("/v1/leases/x").await.status, 401);
    assert_eq!(world.delete("/v1/proxies/default/p/cooldowns").await.status, 401);
}

#[tokio::test]
async fn without_any_token_configured_the_api_is_open_and_keeps_proxy_credentials_to_itself() {
    let world =
        World::with_tokens([with("p", |f| f.auth = credentials("user", "secret"))], Default::default()).await;
    let answer = world.post("/v1/leases", "{}").await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let lease = answer.json();
    assert_eq!(lease["proxy"]["authRequired"], true);
    assert_eq!(lease["proxy"]["password"], serde_json::Value::Null);
    assert_eq!(lease["proxy"]["url"], lease["proxy"]["server"]);
    assert!(!answer.text.contains("secret") && !answer.text.contains("user:"));
}

#[tokio::test]
async fn a_token_that_is_set_but_blank_locks_the_api_and_the_log_says_how_to_mend_it() {
    for blank in ["", " \n"] {
        let log = Log::default();
        let guard = log.start();
        let world = World::with_tokens([proxy("p")], one(blank)).await;
        for headers in [&[][..], &["Bearer "], &["Bearer  \n"]] {
            let headers: Vec<&str> = headers.iter().map(|header| header.trim_end_matches('\n')).collect();
            assert_eq!(status(&world, &headers).await, 401, "{blank:?} {headers:?}");
        }
        drop(guard);
        for part in ["DISCOVERY_TOKEN is set but blank", "set it to a token, or remove it"] {
            assert!(log.text().contains(part), "{}", log.text());
        }
    }
}

#[tokio::test]
async fn a_blank_token_beside_a_tokens_file_leaves_the_tokens_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    std::fs::write(&path, "first").unwrap();
    let world = World::with_tokens([proxy("p")], TokenSources { file: Some(path), ..one(" ") }).await;
    assert_eq!(status(&world, &["Bearer first"]).await, 200);
    assert_eq!(status(&world, &["Bearer "]).await, 401);
}

#[tokio::test]
async fn a_file_may_hold_several_tokens_and_comments_beside_the_one_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    std::fs::write(&path, "# crawlers\nfirst \n\nsecond\r\n").unwrap();
    let sources = TokenSources { file: Some(path), ..one("third\n") };
    let world = World::with_tokens([proxy("p")], sources).await;
    for (token, expected) in [("first", 200), ("second", 200), ("third", 200), ("# crawlers", 401), ("", 401)]
    {
        assert_eq!(status(&world, &[&format!("Bearer {token}")]).await, expected, "{token:?}");
    }
}

#[tokio::test]
async fn a_tokens_file_that_is_empty_or_missing_locks_the_api_and_never_opens_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    for content in [None, Some(""), Some("# none yet\n\n")] {
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let world = World::with_tokens([proxy("p")], from_file(&path)).await;
        for headers in [&[][..], &["Bearer "], &["Bearer # none yet"]] {
            assert_eq!(status(&world, headers).await, 401, "{content:?} {headers:?}");
        }
    }
}

#[tokio::test]
async fn a_changed_tokens_file_counts_at_once_and_an_unreadable_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    std::fs::write(&path, "old").unwrap();
    let log = Log::default();
    let guard = log.start();
    let tokens = Tokens::load(from_file(&path)).await;
    let world = World::build([proxy("p")], Arc::clone(&tokens));
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(tokens.watch(Duration::from_millis(10), stop.clone()));

    std::fs::write(&path, "new").unwrap();
    until(&world, "Bearer new", 200).await;
    assert_eq!(status(&world, &["Bearer old"]).await, 401);

    for round in 1..=2 {
        std::fs::remove_file(&path).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(
            status(&world, &["Bearer new"]).await,
            200,
            "a moment without the file locked everybody out"
        );
        let warnings = log.text().matches("stay in force. To revoke them, empty the file").count();
        assert_eq!(warnings, round, "{}", log.text());
        std::fs::write(&path, "new").unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(log.text().matches("can be read again").count(), round, "{}", log.text());
    }
    drop(guard);

    std::fs::write(&path, "").unwrap();
    until(&world, "Bearer new", 401).await;
    stop.cancel();
    tasks.join_all().await;
}

async fn until(world: &World, header: &str, expected: u16) {
    for _ in 0..500 {
        if status(world, &[header]).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{header:?} is not answered with {expected}");
}

#[tokio::test]
async fn debug_output_shows_no_token() {
    let tokens = Tokens::load(one("hunter2")).await;
    assert!(!format!("{tokens:?}").contains("hunter2"));
}
