//! The answers of our own writes, for as long as they are newer than the store.
//!
//! A watch event takes its time. A reconcile that starts right after a write of ours must not decide on
//! the object as it was before that write, and the event that only brings our own write back is no news.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::ids::ProxyKey;
use kube::ResourceExt;

/// Our last write per uid. Of one that the store has only the version is kept: the object is there.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_uid: HashMap<String, Written>,
    /// Deleted objects whose finalizer we took away, and which the store may still have with it.
    finished: HashMap<ProxyKey, String>,
}

#[derive(Debug)]
struct Written {
    version: Option<String>,
    /// Until the store has it.
    object: Option<Arc<Proxy>>,
}

impl OwnWrites {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the answer of a write, or of a live read.
    pub(crate) fn keep(&self, mut object: Proxy) {
        let Some(uid) = object.uid() else { return };
        // Most of an object, and of no use to anybody here; the caches do without it too.
        object.metadata.managed_fields = None;
        let by_uid = &mut self.kept().by_uid;
        let version = object.metadata.resource_version.clone();
        let newer =
            by_uid.get(&uid).is_none_or(|kept| !is_newer(kept.version.as_deref(), version.as_deref()));
        if newer {
            by_uid.insert(uid, Written { version, object: Some(Arc::new(object)) });
        }
    }

    /// The newer of the store's object and our last write.
    pub(crate) fn newest(&self, stored: Arc<Proxy>) -> Arc<Proxy> {
        let Some(uid) = stored.uid() else { return stored };
        match self.kept().by_uid.get(&uid) {
            Some(Written { version, object: Some(kept) })
                if is_newer(version.as_deref(), stored.metadata.resource_version.as_deref()) =>
            {
                Arc::clone(kept)
            }
            Some(_) | None => stored,
        }
    }

    /// The store has this version now. True if it is the very one that our last write made.
    pub(crate) fn arrived(&self, uid: &str, version: &str) -> bool {
        let mut kept = self.kept();
        let Some(written) = kept.by_uid.get_mut(uid) else { return false };
        if !is_newer(written.version.as_deref(), Some(version)) {
            written.object = None;
        }
        written.version.as_deref() == Some(version)
    }

    /// Forgets an object that is no more.
    pub(crate) fn forget(&self, uid: &str) {
        self.kept().by_uid.remove(uid);
    }

    /// We took our finalizer away from an object that is being deleted. The store may still have it, with the
    /// finalizer: until it does not, our last write stands before that.
    pub(crate) fn finish(&self, key: &ProxyKey, uid: &str) {
        let mut kept = self.kept();
        if let Some(before) = kept.finished.insert(key.clone(), uid.to_owned())
            && before != uid
        {
            kept.by_uid.remove(&before);
        }
    }

    /// True of an object that we let go, as long as the store has nothing newer of it. The answer to the removal of
    /// the last finalizer may have the version that the store has with the finalizer.
    pub(crate) fn is_finished(&self, key: &ProxyKey, uid: &str, version: &str) -> bool {
        let kept = self.kept();
        let last = kept.by_uid.get(uid).and_then(|written| written.version.as_deref());
        let is_news = last.is_none() || is_newer(Some(version), last);
        !is_news && kept.finished.get(key).is_some_and(|finished| finished == uid)
    }

    /// The store has this object under the key now, or none: what was finished and is not there is forgotten.
    pub(crate) fn store_has(&self, key: &ProxyKey, uid: Option<&str>) {
        let mut kept = self.kept();
        if kept.finished.get(key).is_some_and(|finished| Some(finished.as_str()) != uid)
            && let Some(finished) = kept.finished.remove(key)
        {
            kept.by_uid.remove(&finished);
        }
    }
}

/// True if `a` is certainly newer than `b`. Resource versions of one kind are ordered numbers (documented
/// for Kubernetes 1.35, true of every release before it); any other text is never newer.
fn is_newer(a: Option<&str>, b: Option<&str>) -> bool {
    let number = |version: Option<&str>| version?.parse::<u128>().ok();
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
        assert!(!writes.arrived("u", "9"), "of an older write");
        assert_eq!(version(&writes.newest(Arc::new(proxy("9")))), "10");
    }

    #[test]
    fn of_what_the_store_has_only_the_version_is_kept() {
        let writes = OwnWrites::default();
        writes.keep(proxy("10"));
        assert!(writes.arrived("u", "10") && writes.arrived("u", "10"));
        assert!(writes.kept().by_uid["u"].object.is_none());
        assert!(!writes.arrived("u", "11") && !writes.arrived("another", "10"));
        writes.keep(proxy("12"));
        assert_eq!(version(&writes.newest(Arc::new(proxy("11")))), "12");
    }

    #[test]
    fn what_is_finished_hides_an_older_store_until_the_store_no_longer_has_it() {
        let (writes, key) = (OwnWrites::default(), ProxyKey::new("ns", "a"));
        writes.keep(proxy("10"));
        writes.finish(&key, "u");
        writes.store_has(&key, Some("u"));
        assert_eq!(version(&writes.newest(Arc::new(proxy("9")))), "10");
        writes.store_has(&key, Some("another"));
        assert_eq!(version(&writes.newest(Arc::new(proxy("9")))), "9");
        assert!(writes.kept().by_uid.is_empty() && writes.kept().finished.is_empty(), "{writes:?}");
    }

    #[test]
    fn what_was_let_go_stays_so_although_its_last_version_is_that_of_the_store() {
        let (writes, key) = (OwnWrites::default(), ProxyKey::new("ns", "a"));
        let is_finished = |uid: &str, version: &str| writes.is_finished(&key, uid, version);
        writes.keep(proxy("10"));
        assert!(!is_finished("u", "10"));
        writes.finish(&key, "u");
        assert!(!writes.arrived("u", "9") && writes.arrived("u", "10"));
        assert!(is_finished("u", "9") && is_finished("u", "10"));
        assert!(!is_finished("u", "11") && !is_finished("another", "10"));
        writes.store_has(&key, None);
        assert!(!is_finished("u", "10"));
    }

    #[test]
    fn of_two_that_were_finished_under_one_name_nothing_is_left() {
        let (writes, key) = (OwnWrites::default(), ProxyKey::new("ns", "a"));
        writes.keep(proxy("10"));
        writes.finish(&key, "u");
        writes.finish(&key, "another");
        writes.store_has(&key, None);
        assert!(writes.kept().by_uid.is_empty() && writes.kept().finished.is_empty(), "{writes:?}");
    }

    #[test]
    fn a_version_that_is_no_number_never_hides_the_store() {
        let writes = OwnWrites::default();
        writes.keep(proxy("zz"));
        assert_eq!(version(&writes.newest(Arc::new(proxy("9")))), "9");
    }
}
