//! What is there, and what is never said about it.

use egress_proxies_core::crd::Phase;
use egress_proxies_core::facts::{Auth, Fleet};
use egress_proxies_core::ids::ProviderName;
use serde_json::{Value, json};

use crate::world::{World, credentials, proxy, with};

fn ids(list: &Value) -> Vec<&str> {
    list["proxies"].as_array().expect("a list").iter().map(|p| p["id"].as_str().expect("an id")).collect()
}

#[tokio::test]
async fn an_item_has_every_field_and_no_credentials() {
    let managed = with("a", |f| {
        f.mode = egress_proxies_core::crd::Mode::Managed;
        f.provider = Some(ProviderName::parse("gcp-eu").unwrap());
        f.auth = credentials("user", "hunter2");
        f.max_leases = Some(5);
        f.machine.as_mut().unwrap().address = "2001:db8::7".to_owned();
    });
    let waiting = with("b", |f| {
        (f.machine, f.healthy, f.latency, f.phase, f.suspend) = (None, None, None, Phase::Pending, true);
    });
    let world = World::new([managed, waiting]).await;
    world.lease("{}").await;
    let answer = world.get("/v1/proxies").await;
    let expected = json!({"count": 2, "proxies": [
        {
            "id": "default/a", "ip": "2001:db8::7", "port": 3128, "server": "http://[2001:db8::7]:3128",
            "mode": "Managed", "provider": "gcp-eu", "attributes": {"geo": "local"}, "healthy": true,
            "phase": "Ready", "latencyMillis": 12, "activeLeases": 1, "maxLeases": 5,
            "maxLeasesPerTarget": null, "authRequired": true, "suspended": false,
        },
        {
            "id": "default/b", "ip": null, "port": null, "server": null, "mode": "External", "provider": null,
            "attributes": {"geo": "local"}, "healthy": false, "phase": "Pending", "latencyMillis": null,
            "activeLeases": 0, "maxLeases": null, "maxLeasesPerTarget": null, "authRequired": false,
            "suspended": true,
        },
    ]});
    assert_eq!(answer.json(), expected);
    assert!(!world.get("/v1/proxies/default/a").await.text.contains("hunter2"));
}

#[tokio::test]
async fn filters_narrow_the_list_and_none_left_is_an_empty_list() {
    let geo = |name: &str, value: &str| {
        with(name, |f| {
            f.attributes.insert("geo".to_owned(), value.to_owned());
            f.attributes.insert("plan b".to_owned(), "a&b".to_owned());
        })
    };
    let mut other = proxy("other");
    other.key.namespace = "team".to_owned();
    let world = World::new([
        geo("de", "de"),
        geo("fr", "fr"),
        geo("us", "us"),
        other,
        with("sick", |f| f.healthy = Some(false)),
        with("leaving", |f| f.deleting = true),
        with("new", |f| f.healthy = None),
    ])
    .await;
    let rows: [(&str, &[&str]); 9] = [
        ("attr.geo=de", &["default/de"]),
        ("attr.geo=de&attr.geo=fr", &["default/de", "default/fr"]),
        ("attr.geo=de&attr.plan+b=a%26b", &["default/de"]),
        ("attr.geo=de&attr.plan%20b=c", &[]),
        ("namespace=team", &["team/other"]),
        ("namespace=nowhere", &[]),
        ("healthy=true&attr.geo=local", &["team/other"]),
        ("healthy=false", &["default/leaving", "default/new", "default/sick"]),
        ("attr.nope=x", &[]),
    ];
    for (query, expected) in rows {
        let answer = world.get(&format!("/v1/proxies?{query}")).await;
        assert_eq!(answer.status, 200, "{query}");
        let list = answer.json();
        assert_eq!(ids(&list), expected, "{query}");
        assert_eq!(list["count"], expected.len(), "{query}");
    }
}

#[tokio::test]
async fn before_all_proxies_are_known_nothing_is_concluded() {
    let world = World::new([]).await;
    world.fleet.send_replace(Fleet::default());
    let answers = [
        world.get("/v1/proxies").await,
        world.get("/v1/proxies/default/p").await,
        world.post("/v1/leases", "{}").await,
        world.post("/v1/leases/x/renew", "{}").await,
        world.post("/v1/leases/x/report", r#"{"result":"ok"}"#).await,
        world.delete("/v1/proxies/default/p/cooldowns").await,
    ];
    for answer in answers {
        assert_eq!(answer.error(), (503, "not_ready".to_owned()));
        assert_eq!(answer.headers["retry-after"], "2");
    }
    assert_eq!(world.delete("/v1/leases/x").await.status, 204);
    assert_eq!(world.get("/healthz").await.status, 200);
    world.set([]);
    assert_eq!(world.get("/v1/proxies").await.json(), json!({"proxies": [], "count": 0}));
}

#[tokio::test]
async fn one_proxy_shows_who_holds_it_and_what_rests_but_never_a_lease_id() {
    let world = World::new([with("p", |f| f.auth = Auth::Missing("no Secret".to_owned()))]).await;
    assert_eq!(world.get("/v1/proxies/default/p").await.json()["authRequired"], true);
    world.set([proxy("p")]);
    let lease = world.lease(r#"{"target":"Shop.Example:443","holder":"spider-7","ttlSeconds":60}"#).await;
    let report = r#"{"result":"rate_limited","cooldownSeconds":90}"#;
    assert_eq!(world.post(&format!("/v1/leases/{lease}/report"), report).await.status, 204);
    let unreachable = r#"{"result":"unreachable"}"#;
    assert_eq!(world.post(&format!("/v1/leases/{lease}/report"), unreachable).await.status, 204);
    let answer = world.get("/v1/proxies/default/p").await;
    let shown = answer.json();
    assert_eq!(
        shown["leases"],
        json!([{"target": "shop.example", "holder": "spider-7", "expiresAt": "2027-01-15T08:01:00Z"}])
    );
    assert_eq!(shown["cooldowns"], json!([{"target": "shop.example", "until": "2027-01-15T08:01:30Z"}]));
    assert_eq!((&shown["activeLeases"], &shown["reportedUnreachable"]), (&json!(1), &json!(true)));
    assert!(!answer.text.contains(&lease));
}
