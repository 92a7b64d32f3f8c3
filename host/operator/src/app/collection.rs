//! Starts garbage collection, or says why there is none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::gc::View;
use tokio_util::sync::CancellationToken;

use super::Application;
use super::supervisor::Supervisor;
use crate::config::{Interval, Settings};
use crate::gc::{self, GcSetup, ProxyApi};
use crate::metrics::Metrics;

/// A task of its own, unless the settings keep it from running.
pub(super) fn start(tasks: &mut Supervisor, stop: &CancellationToken, application: &Application) {
    let Application { settings, cluster, leadership, providers, clock, metrics, .. } = application;
    let (interval, view) = match scope(settings) {
        Ok(scope) => scope,
        Err(why) => {
            tracing::warn!("garbage collection is off: {why}");
            return;
        }
    };
    let setup = GcSetup {
        proxies: Arc::new(ProxyApi::new(cluster.client.clone(), view.clone())),
        view,
        providers: providers.host(),
        names: providers.names(),
        cluster: cluster.id.clone(),
        policy: settings.gc.policy(),
        interval,
        dry_run: settings.gc.gc_dry_run,
        leadership: leadership.clone(),
        clock: Arc::clone(clock),
        metrics: Arc::<Metrics>::clone(metrics),
    };
    if setup.dry_run {
        tracing::warn!("garbage collection is a dry run: what would be deleted is only logged and counted");
    }
    let running = gc::run(setup, stop.clone());
    tasks.spawn("garbage collection", async move { Ok(running.await?) });
}

/// How often, and which Proxies are seen; or why not at all.
fn scope(settings: &Settings) -> Result<(Duration, View), &'static str> {
    let interval = match settings.gc.gc_interval {
        Interval::Off => return Err("--gc-interval is 0; machines that nobody needs any more stay for ever"),
        Interval::Every(interval) => interval,
    };
    let namespaces: BTreeSet<String> = settings.namespaces().into_iter().collect();
    if namespaces.is_empty() {
        return Ok((interval, View::All));
    }
    if !settings.gc.gc_allow_namespaced {
        return Err(
            "--namespaces hides Proxies, and the machines of hidden Proxies must not be taken for garbage; give \
             --gc-allow-namespaced to judge only machines made for Proxies in these namespaces",
        );
    }
    Ok((interval, View::Namespaces(namespaces)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parse;

    #[test]
    fn a_view_of_some_namespaces_needs_to_be_allowed() {
        let scope_of = |arguments: &[&str]| scope(&parse(arguments).unwrap());
        assert_eq!(scope_of(&[]), Ok((Duration::from_mins(10), View::All)));
        let why = scope_of(&["--namespaces", "a,b"]).unwrap_err();
        assert!(why.contains("--namespaces") && why.contains("--gc-allow-namespaced"), "{why}");
        let names = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let allowed = scope_of(&["--namespaces", "a,b", "--gc-allow-namespaced", "--gc-interval", "1m"]);
        assert_eq!(allowed, Ok((Duration::from_mins(1), View::Namespaces(names))));
        assert!(scope_of(&["--gc-interval", "0"]).unwrap_err().contains("--gc-interval is 0"));
    }
}
