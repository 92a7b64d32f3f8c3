//! Proxies that a client found unreachable. They are not leased again until a probe that began after the
//! report succeeds; a probe is forced at once, and again and again while waiting, but at most one per
//! period, so that clients cannot turn reports into a flood of probes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::select::staying_machine;
use crate::facts::{Fleet, GoodProbe, ProbeRequest};
use crate::ids::{Incarnation, ProxyUid};
use crate::time::Moment;

/// Shortest time between two forced probes of one Proxy.
pub const FORCED_PROBE_PERIOD: Duration = Duration::from_secs(10);

/// The proxies held back.
#[derive(Debug, Clone, Default)]
pub struct Holds {
    held: BTreeMap<ProxyUid, Hold>,
    forced: BTreeMap<ProxyUid, Moment>,
}

#[derive(Debug, Clone)]
struct Hold {
    incarnation: Incarnation,
    since: Moment,
    seen_unhealthy: bool,
}

impl Holds {
    /// Holds the machine back until a probe that begins after `now` succeeds.
    pub fn report(&mut self, uid: &ProxyUid, incarnation: &Incarnation, now: Moment) {
        self.held.insert(
            uid.clone(),
            Hold { incarnation: incarnation.clone(), since: now, seen_unhealthy: false },
        );
    }

    /// The machine is held back.
    pub fn holds(&self, uid: &ProxyUid, incarnation: &Incarnation) -> bool {
        self.held.get(uid).is_some_and(|hold| hold.incarnation == *incarnation)
    }

    /// Lets the machine go if the probe answers the report.
    pub fn probed(&mut self, probe: &GoodProbe) {
        if self
            .held
            .get(&probe.uid)
            .is_some_and(|hold| hold.incarnation == probe.incarnation && probe.started >= hold.since)
        {
            self.held.remove(&probe.uid);
        }
    }

    /// Lets go what the fleet shows to be answered: another machine, or one that became unhealthy and
    /// healthy again since the report.
    pub fn observe(&mut self, fleet: &Fleet) {
        self.held.retain(|uid, hold| {
            let Some(facts) = fleet.proxies.get(uid) else { return false };
            if staying_machine(facts).is_some_and(|machine| machine.incarnation != hold.incarnation) {
                return false;
            }
            match facts.healthy {
                Some(false) => hold.seen_unhealthy = true,
                Some(true) if hold.seen_unhealthy => return false,
                Some(true) | None => {}
            }
            true
        });
    }

    /// The probes to force now. Each is returned once per period, unless it is [put off](Self::put_off).
    pub fn due(&mut self, now: Moment) -> Vec<ProbeRequest> {
        self.forced.retain(|_, at| now.since(*at) < FORCED_PROBE_PERIOD);
        let mut requests = Vec::new();
        for (uid, hold) in &self.held {
            if !self.forced.contains_key(uid) {
                self.forced.insert(uid.clone(), now);
                requests.push(ProbeRequest { uid: uid.clone(), incarnation: hold.incarnation.clone() });
            }
        }
        requests
    }

    /// Nobody took these: they are due again at once. Else the same first ones would get through each time
    /// when more are held than can be asked for, and the others never.
    pub fn put_off(&mut self, refused: &[ProbeRequest]) {
        for request in refused {
            self.forced.remove(&request.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    fn ids() -> (ProxyUid, Incarnation) {
        (ProxyUid::parse("u1").unwrap(), Incarnation::parse("m1").unwrap())
    }

    #[test]
    fn only_a_probe_of_this_machine_that_began_after_the_report_lets_it_go() {
        let (uid, m1) = ids();
        let mut holds = Holds::default();
        holds.report(&uid, &m1, at(100));
        let m2 = Incarnation::parse("m2").unwrap();
        for (incarnation, started) in [(&m1, 99), (&m2, 101)] {
            holds.probed(&GoodProbe {
                uid: uid.clone(),
                incarnation: incarnation.clone(),
                started: at(started),
            });
            assert!(holds.holds(&uid, &m1));
        }
        holds.probed(&GoodProbe { uid: uid.clone(), incarnation: m1.clone(), started: at(100) });
        assert!(!holds.holds(&uid, &m1));
    }

    #[test]
    fn one_forced_probe_per_ten_seconds_however_often_clients_report() {
        let (uid, m1) = ids();
        let mut holds = Holds::default();
        let mut forced = Vec::new();
        for second in 0..25 {
            holds.report(&uid, &m1, at(second));
            if !holds.due(at(second)).is_empty() {
                forced.push(second);
            }
            holds.probed(&GoodProbe { uid: uid.clone(), incarnation: m1.clone(), started: at(second) });
        }
        assert_eq!(forced, [0, 10, 20]);
    }

    #[test]
    fn an_unanswered_report_is_asked_about_again() {
        let (uid, m1) = ids();
        let mut holds = Holds::default();
        holds.report(&uid, &m1, at(0));
        let asked: Vec<u64> = (0..31).filter(|s| !holds.due(at(*s)).is_empty()).collect();
        assert_eq!(asked, [0, 10, 20, 30]);
    }

    #[test]
    fn what_nobody_took_is_due_again_before_what_was_taken() {
        let mut holds = Holds::default();
        for name in ["a", "b", "c"] {
            let incarnation = Incarnation::parse(name).unwrap();
            holds.report(&ProxyUid::parse(name).unwrap(), &incarnation, at(0));
        }
        let mut taken = Vec::new();
        for second in 0..12 {
            let mut due = holds.due(at(second));
            let refused = due.split_off(due.len().min(1)); // room for one
            taken.extend(due.into_iter().map(|request| (second, request.uid.to_string())));
            holds.put_off(&refused);
        }
        let expected = [(0, "a"), (1, "b"), (2, "c"), (10, "a"), (11, "b")];
        assert_eq!(taken, expected.map(|(second, name)| (second, name.to_owned())));
    }
}
