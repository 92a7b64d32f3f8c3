//! What this process remembers of each Proxy between passes, by uid, with what it has to know of the object should
//! that be gone.
//!
//! An object that disappears from the API server in the middle of its life still gets one more pass from
//! here, so that a machine that nobody wrote down yet is not forgotten.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use egress_proxies_core::facts::Machine;
use egress_proxies_core::ids::{ProviderName, ProxyKey, ProxyUid};
use egress_proxies_core::lifecycle::{Memory, ObjectFacts, Observed, Policy, is_surveyed, seen_in_list};
use egress_proxies_core::provider::Instance;
use egress_proxies_core::time::Moment;

/// One Proxy.
#[derive(Debug, Clone)]
struct Remembered {
    /// What is left of it once it is gone, see [`ObjectFacts::remains`].
    object: ObjectFacts,
    memory: Memory,
}

/// Boxed: there is nearly always one, and a map has room for more.
type ByUid = HashMap<ProxyUid, Box<Remembered>>;

/// All Proxies that this process has worked on and that are not finished.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    by_key: Mutex<HashMap<ProxyKey, ByUid>>,
}

impl Memories {
    fn map(&self) -> MutexGuard<'_, HashMap<ProxyKey, ByUid>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of an object; new with a random seed if nothing is.
    pub(crate) fn of(&self, object: &ObjectFacts) -> Memory {
        let known =
            self.map().get(&object.key).and_then(|uids| uids.get(&object.uid)).map(|it| it.memory.clone());
        known.unwrap_or_else(|| Memory::new(rand::random()))
    }

    /// Keeps what a pass has learned so far. Asked around each effect; the object is another one only if its
    /// version is.
    pub(crate) fn keep(&self, observed: &Observed) {
        let Observed { object, memory, .. } = observed;
        let mut map = self.map();
        match map.entry(object.key.clone()).or_default().entry(object.uid.clone()) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if known.object.resource_version != object.resource_version {
                    known.object = object.remains();
                }
                known.memory = memory.clone();
            }
            Entry::Vacant(new) => {
                new.insert(Box::new(Remembered { object: object.remains(), memory: memory.clone() }));
            }
        }
    }

    /// Forgets an object.
    pub(crate) fn forget(&self, object: &ObjectFacts) {
        let mut map = self.map();
        if let Entry::Occupied(mut entry) = map.entry(object.key.clone()) {
            entry.get_mut().remove(&object.uid);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// The machine of an object that this process saw run.
    pub(crate) fn running_machine(&self, key: &ProxyKey, uid: &ProxyUid) -> Option<Machine> {
        self.map().get(key)?.get(uid)?.memory.running_machine()
    }

    /// Of how many objects of each provider the machine can be looked at by a list.
    pub(crate) fn surveyed(&self) -> BTreeMap<ProviderName, usize> {
        let mut counts = BTreeMap::new();
        let map = self.map();
        let surveyed =
            map.values().flat_map(HashMap::values).filter(|it| is_surveyed(&it.object, &it.memory));
        for name in surveyed.filter_map(|it| it.object.provider()) {
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Takes a list of the machines of a provider, as they were then, for looks at those that run as before; answers
    /// how many these are, of how many. A pass that is under way keeps what it has learned instead.
    pub(crate) fn listed(
        &self,
        provider: &ProviderName,
        machines: &[Instance],
        as_of: Moment,
        policy: &Policy,
    ) -> (usize, usize) {
        let by_id: HashMap<_, _> = machines.iter().map(|machine| (&machine.id, machine)).collect();
        let (mut shown, mut of) = (0, 0);
        for it in self.map().values_mut().flat_map(HashMap::values_mut) {
            let Remembered { object, memory } = it.as_mut();
            if object.provider().as_ref() != Some(provider) || !is_surveyed(object, memory) {
                continue;
            }
            of += 1;
            let listed = memory.last_seen.as_ref().and_then(|seen| by_id.get(&seen.instance.id));
            if listed.is_some_and(|machine| seen_in_list(object, memory, machine, as_of, policy)) {
                shown += 1;
            }
        }
        (shown, of)
    }

    /// The provider of an object that is remembered under this key.
    pub(crate) fn provider_of(&self, key: &ProxyKey) -> Option<ProviderName> {
        self.map().get(key)?.values().find_map(|it| it.object.provider())
    }

    /// Objects remembered under this key, `current` apart: they are gone from the cache, and have to be looked at
    /// before anything is decided on them.
    pub(crate) fn left_behind(&self, key: &ProxyKey, current: Option<&ProxyUid>) -> Vec<ObjectFacts> {
        let map = self.map();
        let others = map.get(key).into_iter().flatten().filter(|(uid, _)| Some(*uid) != current);
        others.map(|(_, it)| it.object.clone()).collect()
    }
}
