//! The answers of our own writes, for as long as they are newer than the store.
//!
//! A watch event takes its time. A reconcile that starts right after a write of ours must not decide on
//! the object as it was before that write, and the event that only brings our own write back is no news.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egress_proxies_core::crd::Proxy;
use kube::ResourceExt;

/// Our last write per uid.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    by_uid: Mutex<HashMap<String, Arc<Proxy>>>,
}

impl OwnWrites {
    fn map(&self) -> MutexGuard<'_, HashMap<String, Arc<Proxy>>> {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the answer of a write, or of a live read.
    pub(crate) fn keep(&self, mut object: Proxy) {
        let Some(uid) = object.uid() else { return };
        // Most of an object, and of no use to anybody here; the caches do without it too.
        object.metadata.managed_fields = None;
        let mut map = self.map();
        let newer = map.get(&uid).is_none_or(|kept| !is_newer(kept, &object));
        if newer {
            map.insert(uid, Arc::new(object));
        }
    }

    /// The newer of the store's object and our last write.
    pub(crate) fn newest(&self, stored: Arc<Proxy>) -> Arc<Proxy> {
        let Some(uid) = stored.uid() else { return stored };
        match self.map().get(&uid) {
            Some(kept) if is_newer(kept, &stored) => Arc::clone(kept),
            Some(_) | None => stored,
        }
    }

    /// True if this version is the very one that our last write made.
    pub(crate) fn is_ours(&self, uid: &str, version: &str) -> bool {
        self.map().get(uid).is_some_and(|kept| kept.metadata.resource_version.as_deref() == Some(version))
    }

    /// Forgets an object that is no more.
    pub(crate) fn forget(&self, uid: &str) {
        self.map().remove(uid);
    }
}

/// True if `a` is certainly newer than `b`. Resource versions of one kind are ordered numbers (documented
/// for Kubernetes 1.35, true of every release before it); any other text is never newer.
fn is_newer(a: &Proxy, b: &Proxy) -> bool {
    let number = |object: &Proxy| object.metadata.resource_version.as_deref()?.parse::<u128>().ok();
    matches!((number(a), number(b)), (Some(a), Some(b)) if a > b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn proxy(version: &str) -> Proxy {
        serde_json::from_value(json!({
            "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
            "metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": version},
            "spec": {"mode": "Managed", "provider": "p"}
        }))
        .unwrap()
    }

    fn version(object: &Proxy) -> String {
        object.resource_version().unwrap()
    }

    #[test]
    fn our_write_hides_an_older_store_and_yields_to_a_newer_one() {
        let writes = OwnWrites::default();
        writes.keep(proxy("10"));
        assert_eq!(version(&writes.newest(Arc::new(proxy("9")))), "10");
        assert_eq!(version(&writes.newest(Arc::new(proxy("11")))), "11");
        writes.keep(proxy("8"));
        assert_eq!(version(&writes.newest(Arc::new(proxy("9")))), "10");
        assert!(writes.is_ours("u", "10") && !writes.is_ours("u", "9"));
    }

    #[test]
    fn a_version_that_is_no_number_never_hides_the_store() {
        let writes = OwnWrites::default();
        writes.keep(proxy("zz"));
        assert_eq!(version(&writes.newest(Arc::new(proxy("9")))), "9");
    }
}
