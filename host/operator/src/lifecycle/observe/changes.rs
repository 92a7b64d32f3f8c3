//! Which objects a watch event really changed.
//!
//! A watch that breaks is started anew with a full list, in which most objects are as they were. Only real
//! differences may cause work, and a deletion that fell into the gap must be seen.
//!
//! The cache takes over a list as a whole, when it is complete. What a list changed is told only then: told
//! earlier, it would be looked up in a cache that does not have it yet, and never be told again.

use std::collections::HashMap;

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
    /// The list under way.
    listed: HashMap<ObjectKey, Change>,
}

impl Changes {
    /// What this event changed in the cache.
    pub(crate) fn of<K: Resource>(&mut self, event: &Event<K>) -> Vec<Change> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let change = there(object);
                self.listed.insert(change.key.clone(), change);
                Vec::new()
            }
            Event::Apply(object) => self.seen(there(object)).into_iter().collect(),
            Event::Delete(object) => {
                let key = key_of(object);
                self.versions.remove(&key);
                vec![gone(key)]
            }
            Event::InitDone => self.list_is_complete(),
        }
    }

    fn list_is_complete(&mut self) -> Vec<Change> {
        let listed = std::mem::take(&mut self.listed);
        let missing = self.versions.keys().filter(|key| !listed.contains_key(*key)).cloned();
        let mut changes = missing.map(gone).collect::<Vec<_>>();
        self.versions.retain(|key, _| listed.contains_key(key));
        changes.extend(listed.into_values().filter_map(|change| self.seen(change)));
        changes
    }

    fn seen(&mut self, change: Change) -> Option<Change> {
        let version = change.version.clone().unwrap_or_default();
        let before = self.versions.insert(change.key.clone(), version.clone());
        (before != Some(version)).then_some(change)
    }
}

fn there<K: Resource>(object: &K) -> Change {
    let version = object.resource_version().unwrap_or_default();
    Change { key: key_of(object), uid: object.uid(), version: Some(version) }
}

fn gone(key: ObjectKey) -> Change {
    Change { key, uid: None, version: None }
}

fn key_of<K: Resource>(object: &K) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    pub(crate) fn object(name: &str, version: &str) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": name, "uid": "u", "resourceVersion": version}
        }))
        .unwrap()
    }

    fn change(name: &str, version: Option<&str>) -> Change {
        let key = ("ns".to_owned(), name.to_owned());
        Change { key, uid: version.map(|_| "u".to_owned()), version: version.map(str::to_owned) }
    }

    fn list(changes: &mut Changes, objects: &[(&str, &str)]) -> Vec<Change> {
        assert_eq!(changes.of::<ConfigMap>(&Event::Init), vec![]);
        for (name, version) in objects {
            assert_eq!(
                changes.of(&Event::InitApply(object(name, version))),
                vec![],
                "the list is not complete"
            );
        }
        let mut told = changes.of::<ConfigMap>(&Event::InitDone);
        told.sort_by(|a, b| a.key.cmp(&b.key));
        told
    }

    #[test]
    fn a_complete_list_reports_only_differences_and_what_went_away_meanwhile() {
        let mut changes = Changes::default();
        let first = list(&mut changes, &[("a", "1"), ("b", "2"), ("d", "3")]);
        assert_eq!(first, vec![change("a", Some("1")), change("b", Some("2")), change("d", Some("3"))]);
        let second = list(&mut changes, &[("a", "1"), ("c", "9"), ("d", "4")]);
        assert_eq!(second, vec![change("b", None), change("c", Some("9")), change("d", Some("4"))]);
        assert_eq!(list(&mut changes, &[("a", "1"), ("c", "9"), ("d", "4")]), vec![]);
    }

    #[test]
    fn a_list_that_broke_off_takes_nothing_away_from_the_next_one() {
        let mut changes = Changes::default();
        list(&mut changes, &[("a", "1")]);
        for event in [Event::Init, Event::InitApply(object("b", "2")), Event::InitApply(object("c", "3"))] {
            assert_eq!(changes.of(&event), vec![]);
        }
        assert_eq!(list(&mut changes, &[("a", "1"), ("b", "2")]), vec![change("b", Some("2"))]);
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
