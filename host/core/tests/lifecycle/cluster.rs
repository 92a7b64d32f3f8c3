//! An API server with one Proxy: resource versions, generations, finalizers, guarded writes, and old
//! versions for stale caches.

use egress_proxies_core::crd::{
    HealthCheckSpec, Mode, PLANNED_ID_ANNOTATION, PLANNED_SCOPE_ANNOTATION, Placement, Proxy, ProxySpec,
    ProxyStatus, SPEC_HASH_ANNOTATION,
};
use egress_proxies_core::lifecycle::{MetadataPatch, ObjectFacts, Written};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The API server.
#[derive(Debug)]
pub(crate) struct Cluster {
    object: Option<Proxy>,
    version: u64,
    history: Vec<Proxy>,
    /// Writes that had an effect.
    pub(crate) writes: u32,
}

/// A Managed Proxy's spec.
pub(crate) fn spec() -> ProxySpec {
    ProxySpec {
        mode: Mode::Managed,
        provider: Some("fake".to_owned()),
        placement: Some(Placement { zone: Some("z0".to_owned()), ..Placement::default() }),
        parameters: None,
        cloud_init: None,
        port: None,
        endpoint: None,
        auth: None,
        attributes: Default::default(),
        max_leases: None,
        max_leases_per_target: None,
        suspend: false,
        health_check: HealthCheckSpec::default(),
    }
}

impl Cluster {
    /// One Proxy of this uid, just applied.
    pub(crate) fn new(uid: &str) -> Self {
        let mut proxy = Proxy::new("p", spec());
        proxy.metadata.namespace = Some("crawl".to_owned());
        proxy.metadata.uid = Some(uid.to_owned());
        proxy.metadata.generation = Some(1);
        let mut cluster = Self { object: None, version: 0, history: Vec::new(), writes: 0 };
        cluster.store(proxy);
        cluster
    }

    fn store(&mut self, mut proxy: Proxy) {
        self.version += 1;
        proxy.metadata.resource_version = Some(self.version.to_string());
        let finished = proxy.metadata.deletion_timestamp.is_some()
            && proxy.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        self.history.push(proxy.clone());
        self.object = if finished { None } else { Some(proxy) };
    }

    /// The live object.
    pub(crate) fn live(&self) -> Option<&Proxy> {
        self.object.as_ref()
    }

    /// What a cache that is `behind` versions old shows.
    pub(crate) fn cached(&self, behind: usize) -> Option<ObjectFacts> {
        if behind == 0 {
            return self.object.as_ref().map(|proxy| ObjectFacts::of(proxy).unwrap());
        }
        let last = self.history.len().checked_sub(1)?;
        self.history.get(last.saturating_sub(behind)).map(|proxy| ObjectFacts::of(proxy).unwrap())
    }

    /// GET.
    pub(crate) fn get(&self) -> Written {
        match &self.object {
            Some(proxy) => Written::Done(Box::new(ObjectFacts::of(proxy).unwrap())),
            None => Written::Gone,
        }
    }

    fn write(&mut self, version: &str, change: impl FnOnce(&mut Proxy)) -> Written {
        let Some(mut proxy) = self.object.clone() else { return Written::Gone };
        if proxy.metadata.resource_version.as_deref() != Some(version) {
            return Written::Conflict;
        }
        change(&mut proxy);
        self.writes += 1;
        let answer = ObjectFacts::of(&proxy).unwrap();
        self.store(proxy);
        match &self.object {
            Some(proxy) => Written::Done(Box::new(ObjectFacts::of(proxy).unwrap())),
            None => Written::Done(Box::new(answer)),
        }
    }

    /// The metadata patch.
    pub(crate) fn patch_metadata(&mut self, patch: &MetadataPatch) -> Written {
        self.write(&patch.resource_version, |proxy| {
            proxy.metadata.finalizers = Some(patch.finalizers.clone());
            let annotations = proxy.metadata.annotations.get_or_insert_default();
            if let Some(hash) = &patch.spec_hash {
                annotations.insert(SPEC_HASH_ANNOTATION.to_owned(), hash.clone());
            }
            if let Some(scope) = &patch.planned_scope {
                annotations.insert(PLANNED_SCOPE_ANNOTATION.to_owned(), scope.clone());
            }
            match &patch.planned_id {
                Some(Some(id)) => {
                    annotations.insert(PLANNED_ID_ANNOTATION.to_owned(), id.to_string());
                }
                Some(None) => {
                    annotations.remove(PLANNED_ID_ANNOTATION);
                }
                None => {}
            }
        })
    }

    /// The status patch.
    pub(crate) fn write_status(&mut self, version: &str, status: &ProxyStatus) -> Written {
        self.write(version, |proxy| proxy.status = Some(status.clone()))
    }

    /// A user edits the spec.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut ProxySpec)) {
        if let Some(mut proxy) = self.object.clone() {
            let before = proxy.spec.clone();
            change(&mut proxy.spec);
            if proxy.spec != before {
                proxy.metadata.generation = proxy.metadata.generation.map(|generation| generation + 1);
                self.store(proxy);
            }
        }
    }

    /// A user sets an annotation, or takes it away.
    pub(crate) fn annotate(&mut self, name: &str, value: Option<&str>) {
        if let Some(mut proxy) = self.object.clone() {
            let annotations = proxy.metadata.annotations.get_or_insert_default();
            match value {
                Some(value) => annotations.insert(name.to_owned(), value.to_owned()),
                None => annotations.remove(name),
            };
            self.store(proxy);
        }
    }

    /// A user deletes the object.
    pub(crate) fn delete(&mut self, now: jiff::Timestamp) {
        let living = self.object.clone().filter(|proxy| proxy.metadata.deletion_timestamp.is_none());
        if let Some(mut proxy) = living {
            proxy.metadata.deletion_timestamp = Some(Time(now));
            proxy.metadata.generation = proxy.metadata.generation.map(|generation| generation + 1);
            self.store(proxy);
        }
    }

    /// Somebody takes all finalizers away by force.
    pub(crate) fn force_finalizers_away(&mut self) {
        if let Some(mut proxy) = self.object.clone() {
            proxy.metadata.finalizers = None;
            self.store(proxy);
        }
    }
}
