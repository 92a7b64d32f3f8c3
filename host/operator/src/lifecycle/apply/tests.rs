//! What a live read leaves behind.

use std::convert::Infallible;
use std::sync::Arc;

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::facts::Fleet;
use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::lifecycle::{Caps, ObjectFacts, Written};
use egress_proxies_core::provider::{Lookup, ProviderSettings, Providers};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;

use super::{Effects, Room};
use crate::clock::SystemClock;
use crate::lifecycle::events::{Events, Sender};
use crate::lifecycle::observe::OwnWrites;
use crate::lifecycle::recorder::Silent;

struct NoProviders;

impl Providers for NoProviders {
    fn lookup(&self, _name: &ProviderName) -> Lookup {
        Lookup::Unknown { configured: Vec::new() }
    }
    fn settings(&self, _name: &ProviderName) -> Option<ProviderSettings> {
        None
    }
}

fn proxy(uid: &str, version: &str) -> Proxy {
    serde_json::from_value(json!({
        "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
        "metadata": {"namespace": "ns", "name": "a", "uid": uid, "resourceVersion": version},
        "spec": {"mode": "Managed", "provider": "p"}
    }))
    .unwrap()
}

/// Effects on an API server that has nothing but this object.
fn effects(live: &Proxy) -> Effects {
    let text = serde_json::to_vec(live).unwrap();
    let server = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::new(Body::from(text.clone()));
        async move { Ok::<_, Infallible>(answer) }
    });
    let client = Client::new(server, "ns");
    let may_act: Arc<dyn Fn() -> bool + Send + Sync> = Arc::new(|| true);
    let sender = Sender {
        client: client.clone(),
        instance: "test".to_owned(),
        metrics: Arc::new(Silent),
        may_act: Arc::clone(&may_act),
    };
    Effects {
        client,
        providers: Arc::new(NoProviders),
        own_writes: Arc::new(OwnWrites::default()),
        events: Events::new(sender).0,
        room: Room::new(Caps::default(), watch::channel(Fleet::default()).1),
        metrics: Arc::new(Silent),
        clock: SystemClock::start(),
        may_act,
    }
}

#[tokio::test]
async fn a_look_that_meets_another_object_of_the_same_name_leaves_its_event_to_be_acted_on() {
    let first = ObjectFacts::of(&proxy("first", "5")).unwrap();
    let effects = effects(&proxy("second", "9"));
    let Written::Done(seen) = effects.look(&first).await else { panic!("no answer") };
    assert_eq!(seen.uid.as_str(), "second");
    assert!(!effects.own_writes.arrived("second", "9"), "its ADDED event would be taken for our own write");
}

#[tokio::test]
async fn a_look_at_the_same_object_is_known_before_its_event_comes() {
    let first = ObjectFacts::of(&proxy("first", "5")).unwrap();
    let effects = effects(&proxy("first", "9"));
    assert!(matches!(effects.look(&first).await, Written::Done(_)));
    assert!(effects.own_writes.arrived("first", "9"));
}
