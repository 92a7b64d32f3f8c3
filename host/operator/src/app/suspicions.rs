//! `/debug/suspicions`: which probe targets are suspected, since when, and why, for whoever is on call.
//!
//! One page and one gauge rather than a word in the status of each Proxy held: that would write to a whole
//! fleet at once, at the very moment in which something of ours is broken.

use std::sync::Arc;

use egress_proxies_core::facts::Suspicions;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::ops::JsonSource;

/// Shows what is suspected when somebody looks.
pub(super) fn page(suspicions: watch::Receiver<Suspicions>) -> JsonSource {
    Arc::new(move || {
        let suspected = suspicions.borrow();
        let shown = suspected.iter().map(|(url, suspicion)| {
            json!({ "url": url, "since": suspicion.since.to_string(), "message": suspicion.message })
        });
        json!({ "suspicions": shown.collect::<Vec<Value>>() })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use egress_proxies_core::facts::Suspicion;

    use super::*;

    #[test]
    fn the_page_follows_the_health_loop() {
        let (sender, receiver) = watch::channel(Suspicions::default());
        let page = page(receiver);
        assert_eq!(page(), json!({ "suspicions": [] }));
        let suspicion = Suspicion {
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            message: "nearly all fail".to_owned(),
        };
        sender.send_replace(Arc::new(BTreeMap::from([("https://target.example/".to_owned(), suspicion)])));
        let expected = json!({
            "url": "https://target.example/", "since": "2026-01-01T00:00:00Z", "message": "nearly all fail"
        });
        assert_eq!(page(), json!({ "suspicions": [expected] }));
        sender.send_replace(Suspicions::default());
        assert_eq!(page(), json!({ "suspicions": [] }));
    }
}
