//! From elected to acting: nothing is decided on what was read before the election, which may be as old as the
//! silence of a dead watch. A process that leads and cannot read keeps the lead from those that could, so it
//! ends after a while. It need not when there are no others, nor while lists come on, however slowly, nor when the
//! API server answers what it would answer to everybody: then it waits for as long as it takes.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{LifecycleError, LifecycleSetup};
use crate::leadership::Leadership;
use crate::lifecycle::observe::Stores;

/// So long may this process act, and does not, and nothing comes of the lists, before it ends.
const UNREAD: Duration = Duration::from_mins(1);
/// Between two looks at that.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until this process is elected, until all caches are from lists that were begun after that, and until the
/// fleet has it.
pub(super) async fn elected_and_fresh(
    setup: &LifecycleSetup,
    stores: &Stores,
    read: &CancellationToken,
) -> Result<(), LifecycleError> {
    until_true(setup.leadership.elected.clone()).await?;
    if !stores.are_of_this_lead() {
        stores.read_anew().await;
    }
    read.cancel();
    until_true(setup.acting.subscribe()).await
}

async fn until_true(mut told: watch::Receiver<bool>) -> Result<(), LifecycleError> {
    told.wait_for(|told| *told).await.map(drop).map_err(|_| LifecycleError::Election)
}

/// Resolves when this process was allowed to act for a minute in all and has not begun, since it could not read.
/// A pause of the lead does not count: then the API server is away for everybody. Nor does time in which all lists
/// that are missing met what everybody meets. Whatever comes of a list starts the minute anew.
pub(super) async fn unread(
    leadership: Leadership,
    acting: watch::Receiver<bool>,
    stores: Stores,
) -> LifecycleError {
    let (mut wasted, mut received) = (Duration::ZERO, stores.received());
    while leadership.shared && !*acting.borrow() {
        sleep(LOOK).await;
        let (before, lagging) = (received, stores.lagging());
        received = stores.received();
        if received != before {
            wasted = Duration::ZERO;
        } else if (leadership.may_act)() && !lagging.is_empty() {
            wasted += LOOK;
        }
        if wasted >= UNREAD && !lagging.is_empty() {
            return LifecycleError::Unread { watches: lagging.join(" and "), after: UNREAD };
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::task::JoinSet;
    use tokio::time::{Instant, timeout};
    use tower::BoxError;

    use super::*;
    use crate::lifecycle::observe::{Change, Namespaces, OnChange, open};

    struct Nobody;

    impl OnChange for Nobody {
        fn proxy(&self, _change: Change) {}
        fn secret(&self, _change: Change) {}
    }

    /// What the API server does when it is asked for Secrets with the label for credentials.
    #[derive(Clone, Copy)]
    enum Says {
        Status(u16),
        /// So many pages, 20 s each, and then nothing.
        Pages(u64),
    }

    fn page(number: u64) -> serde_json::Value {
        json!({
            "metadata": {"resourceVersion": "1", "continue": (number + 1).to_string()},
            "items": [{"metadata": {"name": format!("s{number}"), "namespace": "fleet", "resourceVersion": "1"}}]
        })
    }

    /// An API server without objects but for those.
    async fn answer(says: Says, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let asked = request.uri().to_string();
        if asked.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let (status, body) = match says {
            _ if !asked.contains("proxy-auth") => {
                (200, json!({"metadata": {"resourceVersion": "1"}, "items": []}))
            }
            Says::Status(code) => {
                (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"}))
            }
            Says::Pages(most) => {
                let number = asked.split_once("continue=").map_or("0", |(_, rest)| rest);
                let number: u64 = number.split('&').next().unwrap_or_default().parse()?;
                if number >= most {
                    std::future::pending::<()>().await;
                }
                sleep(Duration::from_secs(20)).await;
                (200, page(number))
            }
        };
        Ok(Response::builder().status(status).body(Body::from(body.to_string().into_bytes()))?)
    }

    struct World {
        stores: Stores,
        may_act: Arc<AtomicBool>,
        acting: watch::Sender<bool>,
        _watches: JoinSet<()>,
    }

    impl World {
        fn new(says: Says) -> Self {
            let client = Client::new(tower::service_fn(move |request| answer(says, request)), "default");
            let told: Arc<dyn OnChange> = Arc::new(Nobody);
            let namespaces = Namespaces::Only(vec!["fleet".to_owned()]);
            let (stores, watches) = open(&client, &namespaces, &Leadership::alone(), &told);
            let mut tasks = JoinSet::new();
            for (_, watch) in watches {
                tasks.spawn(watch);
            }
            let (may_act, acting) = (Arc::new(AtomicBool::new(true)), watch::channel(false).0);
            Self { stores, may_act, acting, _watches: tasks }
        }

        async fn unread(&self, shared: bool) -> String {
            let may_act = Arc::clone(&self.may_act);
            let leadership = Leadership {
                elected: watch::channel(true).1,
                may_act: Arc::new(move || may_act.load(Ordering::SeqCst)),
                shared,
                ..Leadership::alone()
            };
            unread(leadership, self.acting.subscribe(), self.stores.clone()).await.to_string()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_cannot_read_ends_after_a_minute_and_names_what_it_could_not_read() {
        for (code, read_before) in [(403, false), (403, true), (401, false)] {
            let world = World::new(Says::Status(code));
            if read_before {
                drop(timeout(Duration::from_secs(1), world.stores.read_anew()).await);
            }
            let began = Instant::now();
            let said = world.unread(true).await;
            assert!((UNREAD..=UNREAD + LOOK).contains(&began.elapsed()), "{:?}", began.elapsed());
            let watch = "the watch of secrets labelled crawl.example.com/proxy-auth=true in fleet. Check";
            assert!(said.contains(watch) && !said.contains("proxies in"), "{said}");
            assert!(said.contains("deploy/base/2-rbac.yaml") && said.contains("overloaded"), "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_says_to_everybody_is_no_reason_to_leave_the_lead_to_another_one() {
        for code in [404, 429, 500, 503] {
            let world = World::new(Says::Status(code));
            assert!(timeout(Duration::from_hours(1), world.unread(true)).await.is_err(), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_comes_page_by_page_starts_the_minute_anew_and_silence_does_not() {
        for pages in [0, 30] {
            let world = World::new(Says::Pages(pages));
            let began = Instant::now();
            let said = world.unread(true).await;
            let last = Duration::from_secs(20 * pages);
            let ends = (last + UNREAD)..=(last + UNREAD + 2 * LOOK);
            assert!(ends.contains(&began.elapsed()), "{pages}: {:?}", began.elapsed());
            assert!(said.contains("the watch of secrets labelled"), "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_in_which_the_api_server_was_away_does_not_count() {
        let world = World::new(Says::Status(403));
        let began = Instant::now();
        let comes_back = async {
            sleep(Duration::from_millis(30_500)).await;
            world.may_act.store(false, Ordering::SeqCst);
            sleep(Duration::from_hours(1)).await;
            world.may_act.store(true, Ordering::SeqCst);
        };
        tokio::join!(world.unread(true), comes_back);
        let ends = UNREAD + Duration::from_hours(1);
        assert!((ends..=ends + LOOK).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_acts_or_has_nobody_to_leave_the_lead_to_does_not_end() {
        let world = World::new(Says::Status(403));
        let long = Duration::from_hours(1);
        assert!(timeout(long, world.unread(false)).await.is_err());
        world.acting.send_replace(true);
        assert!(timeout(long, world.unread(true)).await.is_err());
    }
}
