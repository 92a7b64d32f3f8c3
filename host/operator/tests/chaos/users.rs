//! What users, other writers and the administrator ask for in a world. What explains a machine that comes or goes
//! is written into the books.

use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::operator::World;
use crate::provider::Component;

const REPLACE: &str = "crawl.example.com/replace";
const ABANDON: &str = "crawl.example.com/abandon";

impl World {
    pub(crate) fn proxies(&self) -> Api<Proxy> {
        Api::namespaced(self.access.client.clone(), &self.namespace)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.access.client.clone(), &self.namespace)
    }

    /// Creates a Proxy; its uid, or the reason against it.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<String, kube::Error> {
        self.create_with(name, json!({}), spec).await
    }

    /// The same with annotations.
    pub(crate) async fn create_with(
        &self,
        name: &str,
        annotations: Value,
        spec: Value,
    ) -> Result<String, kube::Error> {
        let proxy: Proxy = serde_json::from_value(json!({
            "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec
        }))
        .unwrap();
        let proxies = self.proxies();
        let made: Proxy = insist(async || proxies.create(&PostParams::default(), &proxy).await).await?;
        Ok(made.metadata.uid.unwrap_or_default())
    }

    /// The object as it is, if it is there.
    pub(crate) async fn get(&self, name: &str) -> Option<Proxy> {
        let proxies = self.proxies();
        insist(async || proxies.get_opt(name).await).await.unwrap()
    }

    /// A merge patch by a user, and the object that it made; an object that is not there is left so.
    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Option<Proxy> {
        let (proxies, patch) = (self.proxies(), Patch::Merge(patch));
        unless_gone(insist(async || proxies.patch(name, &PatchParams::default(), &patch).await).await)
    }

    /// A patch that asks for a machine made from something else.
    pub(crate) async fn edit(&self, name: &str, patch: Value) {
        let began = Instant::now();
        if let Some(proxy) = self.patch(name, patch).await {
            self.books.edited(proxy.metadata.uid, began);
        }
    }

    /// A person asks for another machine than the one that is there.
    pub(crate) async fn replace(&self, name: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {REPLACE: value}}});
        if let Some(proxy) = self.patch(name, patch).await {
            self.books.asked(&proxy, value);
        }
    }

    /// A person says that the machine may be left behind if nobody can be asked about it.
    pub(crate) async fn abandon(&self, name: &str) {
        self.cloud.tell(&format!("{name} is to be abandoned"));
        drop(self.patch(name, json!({"metadata": {"annotations": {ABANDON: "true"}}})).await);
    }

    /// The provider is another one, or none.
    pub(crate) fn put_provider(&self, component: Component) {
        self.cloud.tell(&format!("the provider is {component:?}"));
        self.books.provider(component, || self.shelf.put(component));
    }

    /// A delete by a user; an object that is not there is left so.
    ///
    /// Of the version that was read: kube-apiserver looks at the finalizers first and deletes then, whatever
    /// came in between, so that a plain delete may take away an object whose finalizer was just added. What
    /// is made for it then is an orphan, and for garbage collection: see `collected`.
    pub(crate) async fn delete(&self, name: &str) {
        let proxies = self.proxies();
        loop {
            let Some(proxy) = insist(async || proxies.get_opt(name).await).await.unwrap() else { return };
            self.cloud.tell(&format!("{name} is deleted by its user"));
            self.books.deleted(proxy.uid());
            let (resource_version, uid) = (proxy.metadata.resource_version, proxy.metadata.uid);
            let preconditions = Some(Preconditions { resource_version, uid });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            match insist(async || proxies.delete(name, &params).await).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {} // it changed meanwhile
                answer => return drop(unless_gone(answer)),
            }
        }
    }

    /// Creates or changes the Secret `boot`; without the label the operator does not see it.
    pub(crate) async fn put_secret(&self, text: &str, visible: bool) {
        let began = Instant::now();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "boot", "labels": {"crawl.example.com/cloud-init": visible.to_string()}},
            "stringData": {"text": text}
        });
        let apply = PatchParams::apply("user").force();
        let (secrets, secret) = (self.secrets(), Patch::Apply(secret));
        insist(async || secrets.patch("boot", &apply, &secret).await).await.unwrap();
        self.books.secret_edited(began);
    }

    /// Another writer adds its finalizer to an object that is not being deleted, or takes it away; nobody
    /// else's is touched.
    pub(crate) async fn finalizer(&self, name: &str, theirs: &str, there: bool) {
        let proxies = self.proxies();
        loop {
            let Some(proxy) = insist(async || proxies.get_opt(name).await).await.unwrap() else { return };
            let mut all = proxy.metadata.finalizers.clone().unwrap_or_default();
            let before = all.len();
            all.retain(|finalizer| finalizer != theirs);
            if there && proxy.metadata.deletion_timestamp.is_none() {
                all.push(theirs.to_owned());
            }
            if all.len() == before {
                return;
            }
            let version = proxy.metadata.resource_version;
            let patch = json!({"metadata": {"finalizers": all, "resourceVersion": version}});
            let patch = Patch::Merge(patch);
            match insist(async || proxies.patch(name, &PatchParams::default(), &patch).await).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {} // it changed meanwhile
                answer => return drop(unless_gone(answer)),
            }
        }
    }

    /// All Proxies as they are.
    pub(crate) async fn list(&self) -> Vec<Proxy> {
        let proxies = self.proxies();
        insist(async || proxies.list(&ListParams::default()).await).await.unwrap().items
    }

    /// The same for the message of a failure.
    pub(crate) async fn state(&self) -> Vec<Value> {
        let all = self.list().await;
        let of = |proxy: &Proxy| json!({"metadata": &proxy.metadata, "status": &proxy.status});
        all.iter().map(of).collect()
    }

    /// Waits, for as long as it takes, until the object is as it should be.
    pub(crate) async fn until(&self, name: &str, holds: impl Fn(Option<&Proxy>) -> bool) -> Option<Proxy> {
        loop {
            match await_condition(self.proxies(), name, |object: Option<&Proxy>| holds(object)).await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
    }
}

/// Asks again while the API server says that it cannot now: the test's own requests are not under test, and
/// the machine may be busy.
async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T, kube::Error>) -> Result<T, kube::Error> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let answer = ask().await;
        let busy = match &answer {
            Err(kube::Error::Api(status)) => status.code >= 500 || status.code == 429,
            Err(_) => true,
            Ok(_) => false,
        };
        if !busy || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn unless_gone<T>(answer: Result<T, kube::Error>) -> Option<T> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Ok(answer) => Some(answer),
        Err(error) => panic!("a request of the test itself: {error}"),
    }
}
