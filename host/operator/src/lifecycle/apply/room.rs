//! The one ledger of this process, behind a lock: what may be taken away now.
//!
//! Holds the lock for a look-up and some arithmetic, never across an effect. It reads the fleet as published,
//! which lags behind; the ledger itself remembers what it has admitted until the fleet shows it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress_proxies_core::facts::{Fleet, ProxyFacts};
use egress_proxies_core::ids::{ProviderName, ProxyUid};
use egress_proxies_core::lifecycle::{Admission, Ask, Caps, Census, Ledger, Refusal};
use egress_proxies_core::time::Moment;
use tokio::sync::watch;

/// Until the next ask while the fleet was not published yet.
const FLEET_UNKNOWN: Duration = Duration::from_secs(1);

/// The ledger and the fleet.
pub(crate) struct Room {
    caps: Caps,
    fleet: watch::Receiver<Fleet>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Option<Ledger>,
    counted: Option<Counted>,
}

/// The censuses of one published fleet: made once, however many ask.
struct Counted {
    fleet: Arc<BTreeMap<ProxyUid, Arc<ProxyFacts>>>,
    censuses: BTreeMap<ProviderName, Arc<Census>>,
}

impl Room {
    /// Nothing was asked yet.
    pub(crate) fn new(caps: Caps, fleet: watch::Receiver<Fleet>) -> Self {
        Self { caps, fleet, state: Mutex::default() }
    }

    /// This process acts from now on: whatever an earlier one admitted stands in the statuses.
    pub(crate) fn begin(&self, now: Moment) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ledger =
            Some(Ledger::new(self.caps.clone(), now));
    }

    /// May this machine go now?
    pub(crate) fn ask(&self, ask: &Ask, now: Moment) -> Admission {
        let fleet = self.fleet.borrow().clone();
        if !fleet.ready {
            return Admission::Refused { why: Refusal::Pending, retry: FLEET_UNKNOWN };
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { ledger, counted } = &mut *state;
        let counted = match counted {
            Some(known) if Arc::ptr_eq(&known.fleet, &fleet.proxies) => known,
            Some(_) | None => {
                let censuses = Census::of(&fleet);
                counted.insert(Counted { fleet: fleet.proxies, censuses })
            }
        };
        let ledger = ledger.get_or_insert_with(|| Ledger::new(self.caps.clone(), now));
        let census = counted.censuses.get(&ask.provider).cloned().unwrap_or_default();
        let was_suspect = ledger.suspects(&ask.provider);
        let answer = ledger.ask(ask, &census, now);
        if ledger.suspects(&ask.provider) != was_suspect {
            if was_suspect {
                tracing::info!(provider = %ask.provider, "machines look well again, or few enough do not");
            } else {
                tracing::warn!(
                    provider = %ask.provider,
                    "so many machines look broken, absent or not ours at once that the look itself is suspected: \
                     they stay as they are, or are made anew one after the other; check the provider's account, \
                     region and API, and --cluster-id"
                );
            }
        }
        answer
    }
}
