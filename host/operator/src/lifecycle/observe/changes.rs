//! Which objects a watch event really changed.
//!
//! A watch that breaks is started anew with a full list, in which most objects are as they were. Only real
//! differences may cause work, and a deletion that fell into the gap must be seen.

use std::collections::{HashMap, HashSet};

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

/// Namespace and name.
pub(crate) type ObjectKey = (String, String);

/// An object that changed, appeared or went away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Which object.
    pub(crate) key: ObjectKey,
    /// Its uid; none if it went away.
    pub(crate) uid: Option<String>,
    /// Its resource version; none if it went away.
    pub(crate) version: Option<String>,
}

/// Remembers the versions seen last.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    versions: HashMap<ObjectKey, String>,
    listed: HashSet<ObjectKey>,
}

impl Changes {
    /// What this event changed.
    pub(crate) fn of<K: Resource>(&mut self, event: &Event<K>) -> Vec<Change> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(key_of(object));
                self.seen(object)
            }
            Event::Apply(object) => self.seen(object),
            Event::Delete(object) => {
                let key = key_of(object);
                self.versions.remove(&key);
                vec![gone(key)]
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let missing =
                    self.versions.keys().filter(|key| !listed.contains(*key)).cloned().collect::<Vec<_>>();
                self.versions.retain(|key, _| listed.contains(key));
                missing.into_iter().map(gone).collect()
            }
        }
    }

    fn seen<K: Resource>(&mut self, object: &K) -> Vec<Change> {
        let key = key_of(object);
        let version = object.resource_version().unwrap_or_default();
        if self.versions.insert(key.clone(), version.clone()).as_ref() == Some(&version) {
            return Vec::new();
        }
        vec![Change { key, uid: object.uid(), version: Some(version) }]
    }
}

fn gone(key: ObjectKey) -> Change {
    Change { key, uid: None, version: None }
}

fn key_of<K: Resource>(object: &K) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn object(name: &str, version: &str) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": name, "uid": "u", "resourceVersion": version}
        }))
        .unwrap()
    }

    fn change(name: &str, version: Option<&str>) -> Change {
        let key = ("ns".to_owned(), name.to_owned());
        Change { key, uid: version.map(|_| "u".to_owned()), version: version.map(str::to_owned) }
    }

    #[test]
    fn a_relist_reports_only_differences_and_what_went_away_meanwhile() {
        let mut changes = Changes::default();
        for event in [Event::Init, Event::InitApply(object("a", "1")), Event::InitApply(object("b", "2"))] {
            changes.of(&event);
        }
        assert_eq!(changes.of::<ConfigMap>(&Event::InitDone), vec![]);
        assert_eq!(changes.of::<ConfigMap>(&Event::Init), vec![]);
        assert_eq!(changes.of(&Event::InitApply(object("a", "1"))), vec![]);
        assert_eq!(changes.of(&Event::InitApply(object("c", "9"))), vec![change("c", Some("9"))]);
        assert_eq!(changes.of::<ConfigMap>(&Event::InitDone), vec![change("b", None)]);
    }

    #[test]
    fn the_same_version_is_no_change_and_a_deletion_is_one() {
        let mut changes = Changes::default();
        assert_eq!(changes.of(&Event::Apply(object("a", "1"))), vec![change("a", Some("1"))]);
        assert_eq!(changes.of(&Event::Apply(object("a", "1"))), vec![]);
        assert_eq!(changes.of(&Event::Delete(object("a", "3"))), vec![change("a", None)]);
        assert_eq!(changes.of(&Event::Apply(object("a", "1"))), vec![change("a", Some("1"))]);
    }
}
