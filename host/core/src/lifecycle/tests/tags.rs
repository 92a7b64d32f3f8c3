use proptest::prelude::*;

use crate::ids::{InstanceId, ProviderName, ProxyKey, ProxyUid};
use crate::lifecycle::tags::shorten;
use crate::lifecycle::{
    Owner, cluster_tags, key_of, machine_name_of, machine_tags, spec_hash, spec_tag_of, uid_of,
};
use crate::provider::{Instance, InstanceState};

fn allowed(value: &str) -> bool {
    value.len() <= 63 && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[test]
fn what_fits_stays_and_what_does_not_keeps_its_beginning_and_a_hash() {
    assert_eq!(shorten("kubernetes"), "kubernetes");
    assert_eq!(shorten(&"a".repeat(63)), "a".repeat(63));
    let long = shorten(&"a".repeat(64));
    assert_eq!(long.len(), 63);
    assert!(long.starts_with(&"a".repeat(50)));
    assert_ne!(shorten("a.b"), shorten("a-b"));
    assert_ne!(shorten("a.b"), shorten("a_b"));
    assert!(shorten("a.b").starts_with("a-b-"));
}

proptest! {
    #[test]
    fn any_text_becomes_a_value_that_every_cloud_takes(text in ".{0,300}") {
        prop_assert!(allowed(&shorten(&text)), "{}", shorten(&text));
    }

    #[test]
    fn names_of_kubernetes_that_differ_have_values_that_differ(
        a in "[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?",
        b in "[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?",
    ) {
        prop_assume!(a != b);
        prop_assert_ne!(shorten(&a), shorten(&b));
    }
}

fn instance(tags: crate::provider::Tags) -> Instance {
    Instance { tags, ..Instance::bare(InstanceId::parse("m1").unwrap(), "px-u1", InstanceState::Running) }
}

#[test]
fn a_machine_has_the_name_of_the_uid_that_owns_it() {
    let owner = Owner::new(&ProxyUid::parse("u1").unwrap(), "c1");
    assert_eq!(machine_name_of(&owner.tags()).as_deref(), Some("px-u1"));
    assert_eq!(machine_name_of(&Default::default()), None);
}

#[test]
fn a_machine_is_ours_by_uid_and_cluster_alone() {
    let uid = ProxyUid::parse("u1").unwrap();
    let owner = Owner::new(&uid, "c1");
    let spec = serde_json::from_str(r#"{"mode":"Managed","provider":"gcp"}"#).unwrap();
    let hash = spec_hash(&spec, None);
    let provider = ProviderName::parse("gcp").unwrap();
    let tags = machine_tags(&owner, &ProxyKey::new("crawl", "p.with.dots"), &provider, &hash);
    assert!(tags.values().all(|value| allowed(value)), "{tags:?}");
    let machine = instance(tags.clone());
    assert_eq!(spec_tag_of(&machine), Some(hash.tag().as_str()));
    assert!(owner.owns(&machine));
    assert!(!Owner::new(&uid, "c2").owns(&machine), "another cluster of the same project");
    assert!(!Owner::new(&ProxyUid::parse("u2").unwrap(), "c1").owns(&machine));
    for key in owner.tags().keys() {
        let mut stripped = tags.clone();
        stripped.remove(key);
        assert!(!owner.owns(&instance(stripped)), "{key}");
    }
    let mut renamed = tags;
    renamed.insert("proxy-operator-name".to_owned(), "other".to_owned());
    assert!(owner.owns(&instance(renamed)));
}

#[test]
fn what_a_machine_says_of_its_proxy_is_read_back_only_where_it_is_whole() {
    let uid = ProxyUid::parse("6f1c7f0e-5f0c-4c3e-9d0e-0123456789ab").unwrap();
    let spec = serde_json::from_str(r#"{"mode":"Managed","provider":"gcp"}"#).unwrap();
    let provider = ProviderName::parse("gcp").unwrap();
    let machine = |name: &str| {
        let owner = Owner::new(&uid, "A Cluster");
        instance(machine_tags(&owner, &ProxyKey::new("crawl", name), &provider, &spec_hash(&spec, None)))
    };
    let plain = machine("proxy-1");
    assert_eq!(uid_of(&plain), Some(uid.clone()), "a uid looks as if it were shortened, and never is");
    assert_eq!(key_of(&plain), Some(ProxyKey::new("crawl", "proxy-1")));
    assert!(cluster_tags("A Cluster").iter().all(|(key, value)| plain.tags.get(key) == Some(value)));
    for shortened in ["p.with.dots", &"a".repeat(64), "like-0123456789ab"] {
        assert_eq!(key_of(&machine(shortened)), None, "{shortened}");
    }
}
