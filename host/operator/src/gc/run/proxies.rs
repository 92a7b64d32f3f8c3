//! The Proxies as the API server has them now: never from a cache, never a part of them taken for all.
//!
//! Objects are read as far as garbage collection needs them, so that one with a spec of a later release
//! does not hide the others.

use std::collections::{BTreeMap, BTreeSet};

use egress_proxies_core::crd::{PLANNED_ID_ANNOTATION, Proxy};
use egress_proxies_core::gc::{LivingProxy, View};
use egress_proxies_core::ids::{InstanceId, ProviderName, ProxyKey, ProxyUid};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::ObjectList;
use kube::{Client, ResourceExt};

/// Objects of one page.
const PAGE: u32 = 500;

/// Existing Proxies by uid.
pub type LiveProxies = BTreeMap<ProxyUid, LivingProxy>;
/// One of them.
pub type LiveProxy = (ProxyUid, LivingProxy);

/// Where the Proxies are. An error means: not known. Both answers are as new as the question.
pub trait ProxySource: Send + Sync {
    /// All of the view.
    fn list(&self) -> BoxFuture<'_, anyhow::Result<LiveProxies>>;
    /// The one with this name; `None` only if there certainly is none.
    fn get<'a>(&'a self, key: &'a ProxyKey) -> BoxFuture<'a, anyhow::Result<Option<LiveProxy>>>;
}

/// The API server.
pub struct ProxyApi {
    client: Client,
    view: View,
    page: u32,
}

impl std::fmt::Debug for ProxyApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyApi").field("view", &self.view).finish_non_exhaustive()
    }
}

impl ProxyApi {
    /// With a client that does not resend and is bounded in time.
    pub fn new(client: Client, view: View) -> Self {
        Self { client, view, page: PAGE }
    }

    /// With pages of this size instead of 500.
    pub fn pages_of(self, page: u32) -> Self {
        Self { page, ..self }
    }

    fn in_namespace(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Proxy>(&()))
    }

    async fn list_view(&self) -> anyhow::Result<LiveProxies> {
        let mut found = LiveProxies::new();
        match &self.view {
            View::All => {
                let all = Api::all_with(self.client.clone(), &ApiResource::erase::<Proxy>(&()));
                list_all(&all, self.page, &mut found).await?;
            }
            View::Namespaces(names) => {
                for name in names {
                    list_all(&self.in_namespace(name), self.page, &mut found).await?;
                }
            }
        }
        Ok(found)
    }
}

impl ProxySource for ProxyApi {
    fn list(&self) -> BoxFuture<'_, anyhow::Result<LiveProxies>> {
        self.list_view().boxed()
    }

    fn get<'a>(&'a self, key: &'a ProxyKey) -> BoxFuture<'a, anyhow::Result<Option<LiveProxy>>> {
        async move {
            // Without a resource version, as `list`: a quorum read.
            let found = self.in_namespace(&key.namespace).get_opt(&key.name).await?;
            found.as_ref().map(living).transpose()
        }
        .boxed()
    }
}

/// Every page, or an error. No resource version is given, so the first page is a quorum read, and the others
/// are of the same moment; if that moment is no longer kept, the API server says so (410), and that is an
/// error as well.
async fn list_all(api: &Api<DynamicObject>, page: u32, found: &mut LiveProxies) -> anyhow::Result<()> {
    let mut params = ListParams::default().limit(page);
    let mut tokens = BTreeSet::new();
    loop {
        let page: ObjectList<DynamicObject> = api.list(&params).await?;
        for object in &page.items {
            let (uid, proxy) = living(object)?;
            found.insert(uid, proxy);
        }
        let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else { return Ok(()) };
        anyhow::ensure!(tokens.insert(token.clone()), "the API server gives the same page again and again");
        params = params.continue_token(&token);
    }
}

fn living(object: &DynamicObject) -> anyhow::Result<LiveProxy> {
    let key = ProxyKey::new(object.namespace().unwrap_or_default(), object.name_any());
    let uid = ProxyUid::parse(object.uid().unwrap_or_default())
        .map_err(|error| anyhow::anyhow!("Proxy {key} has no usable uid: {error}"))?;
    let text = |pointer: &str| object.data.pointer(pointer).and_then(serde_json::Value::as_str);
    let id = |text: Option<&str>| text.and_then(|text| InstanceId::parse(text).ok());
    let proxy = LivingProxy {
        provider: text("/spec/provider").and_then(|name| ProviderName::parse(name).ok()),
        deleting: object.metadata.deletion_timestamp.is_some(),
        recorded: id(text("/status/providerID")),
        planned: id(object.annotations().get(PLANNED_ID_ANNOTATION).map(String::as_str)),
        key,
    };
    Ok((uid, proxy))
}
