//! Tags on a pod, byte for byte.
//!
//! A tag is a label, so that the API server can select by it. The few that cannot be labels (a key or
//! value that ends with a dash) are kept in one annotation instead, as JSON.

use std::collections::BTreeMap;

use egress_proxies_provider_sdk::model::Pair;

/// Holds the tags that cannot be labels.
pub(crate) const ANNOTATION: &str = "crawl.example.com/tags";

type Map = BTreeMap<String, String>;

/// A tag's key and value are within `[a-z0-9-]`; labels also begin and end with a letter or digit.
fn is_label(tag: &Pair) -> bool {
    let ends_well = |text: &str| !text.starts_with('-') && !text.ends_with('-');
    ends_well(&tag.key) && ends_well(&tag.value)
}

/// Write tags into labels and annotations. They win over what is there.
pub(crate) fn write(tags: &[Pair], labels: &mut Map, annotations: &mut Map) {
    let (as_labels, others): (Vec<&Pair>, Vec<&Pair>) = tags.iter().partition(|tag| is_label(tag));
    for tag in as_labels {
        labels.insert(tag.key.clone(), tag.value.clone());
    }
    let others: Map = others.into_iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect();
    if !others.is_empty() {
        for key in others.keys() {
            labels.remove(key);
        }
        annotations.insert(ANNOTATION.to_owned(), serde_json::json!(others).to_string());
    }
}

/// All tags of a pod: its labels, and those of the annotation.
pub(crate) fn read(labels: &Map, annotations: &Map) -> Vec<Pair> {
    let others: Map =
        annotations.get(ANNOTATION).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let pair = |(key, value): (&String, &String)| Pair { key: key.clone(), value: value.clone() };
    let labels = labels.iter().filter(|(key, _)| !others.contains_key(*key));
    labels.map(pair).chain(others.iter().map(pair)).collect()
}

/// Does `tags` have all of `owner`? Nobody owns by an empty list.
pub(crate) fn are_owned(tags: &[Pair], owner: &[Pair]) -> bool {
    !owner.is_empty() && owner.iter().all(|tag| tags.contains(tag))
}

/// A label selector for what the API server can select by. Empty if it cannot.
pub(crate) fn selector(owner: &[Pair]) -> String {
    let terms: Vec<String> =
        owner.iter().filter(|tag| is_label(tag)).map(|tag| format!("{}={}", tag.key, tag.value)).collect();
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> Pair {
        Pair { key: key.into(), value: value.into() }
    }

    #[test]
    fn every_tag_is_read_back_as_it_was_written() {
        let tags = [
            pair("proxy-operator-uid", "3f0c2a4e-0000-4000-8000-000000000001"),
            pair("a", ""),
            pair("b-", "x"),
            pair("c", "-x"),
            pair("d", "x-"),
            pair("e", &"x".repeat(63)),
        ];
        let (mut labels, mut annotations) = (Map::new(), Map::new());
        write(&tags, &mut labels, &mut annotations);
        assert_eq!(labels.keys().collect::<Vec<_>>(), ["a", "e", "proxy-operator-uid"]);
        let mut read = read(&labels, &annotations);
        read.sort_by(|a, b| a.key.cmp(&b.key));
        let mut expected = tags.to_vec();
        expected.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(read, expected);
    }

    #[test]
    fn tags_win_over_labels_of_the_user() {
        let mut labels = Map::from([
            ("a".into(), "user".into()),
            ("b".into(), "user".into()),
            ("z".into(), "user".into()),
        ]);
        let mut annotations = Map::new();
        write(&[pair("a", "tag"), pair("b", "tag-")], &mut labels, &mut annotations);
        assert_eq!(read(&labels, &annotations), [pair("a", "tag"), pair("z", "user"), pair("b", "tag-")]);
    }

    #[test]
    fn ownership_needs_every_tag_with_its_value() {
        let tags = [pair("uid", "1"), pair("cluster", "c"), pair("other", "x")];
        assert!(are_owned(&tags, &[pair("uid", "1"), pair("cluster", "c")]));
        assert!(!are_owned(&tags, &[pair("uid", "1"), pair("cluster", "d")]));
        assert!(!are_owned(&tags, &[pair("uid", "1"), pair("missing", "")]));
        assert!(!are_owned(&tags, &[]));
    }

    #[test]
    fn a_selector_has_only_what_can_be_a_label() {
        assert_eq!(selector(&[pair("uid", "1"), pair("x", "y-"), pair("cluster", "c")]), "uid=1,cluster=c");
        assert_eq!(selector(&[pair("x", "y-")]), "");
    }
}
