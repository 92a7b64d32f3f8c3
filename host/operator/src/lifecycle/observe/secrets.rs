//! Reads what a Proxy refers to from the caches of labelled Secrets.
//!
//! A Secret that is missing, unlabelled or lacks a key is told in words that name the Secret, the label
//! and the key. Values stay inside [`Hidden`] and never appear in a message.

use egress_proxies_core::crd::{AuthSpec, CLOUD_INIT_LABEL, CloudInit, PROXY_AUTH_LABEL, SecretKeyRef};
use egress_proxies_core::facts::{Auth, CaPem};
use egress_proxies_core::lifecycle::CloudInitView;
use egress_proxies_core::provider::{Credentials, Secret as Hidden};
use k8s_openapi::api::core::v1::Secret;

use super::stores::{Cache, Stores};

/// The cloud-init text of a Proxy in `namespace`.
pub(crate) fn cloud_init(stores: &Stores, namespace: &str, spec: Option<&CloudInit>) -> CloudInitView {
    let Some(spec) = spec else { return CloudInitView::NotUsed };
    if let Some(text) = &spec.inline {
        return CloudInitView::Resolved(Hidden::new(text.clone()));
    }
    let Some(reference) = &spec.secret_ref else { return CloudInitView::NotUsed };
    let place = Place { cache: &stores.cloud_init, namespace, label: CLOUD_INIT_LABEL };
    match place.text(&reference.name, &reference.key) {
        Ok(text) => CloudInitView::Resolved(text),
        Err(problem) => CloudInitView::Problem(problem),
    }
}

/// The credentials that a Proxy in `namespace` asks for.
pub(crate) fn auth(stores: &Stores, namespace: &str, spec: Option<&AuthSpec>) -> Auth {
    let Some(AuthSpec { secret_ref }) = spec else { return Auth::None };
    let place = Place { cache: &stores.proxy_auth, namespace, label: PROXY_AUTH_LABEL };
    let read = |key: &str| place.text(&secret_ref.name, key);
    match read(&secret_ref.username_key).and_then(|user| Ok((user, read(&secret_ref.password_key)?))) {
        Ok((username, password)) => Auth::Known(Credentials { username, password }),
        Err(problem) => Auth::Missing(problem),
    }
}

/// Further CA certificates for probes, or why they cannot be read.
pub(crate) fn ca_pem(stores: &Stores, namespace: &str, reference: &SecretKeyRef) -> CaPem {
    let place = Place { cache: &stores.proxy_auth, namespace, label: PROXY_AUTH_LABEL };
    match place.text(&reference.name, &reference.key) {
        Ok(text) => CaPem::Read(text.expose().clone()),
        Err(problem) => CaPem::Missing(problem),
    }
}

struct Place<'a> {
    cache: &'a Cache<Secret>,
    namespace: &'a str,
    label: &'static str,
}

impl Place<'_> {
    fn text(&self, name: &str, key: &str) -> Result<Hidden<String>, String> {
        let Self { cache, namespace, label } = self;
        let secret = cache.get(namespace, name).ok_or_else(|| {
            format!(
                "no Secret {name} with the label {label}: \"true\" in namespace {namespace}: create it, or label it with `kubectl -n {namespace} label secret {name} {label}=true`"
            )
        })?;
        let value = secret.data.as_ref().and_then(|data| data.get(key)).ok_or_else(|| {
            format!("Secret {namespace}/{name} has no key {key}: add it to its data, or name another key")
        })?;
        String::from_utf8(value.0.clone()).map(Hidden::new).map_err(|_| {
            format!("key {key} of Secret {namespace}/{name} is not UTF-8 text: store it as text")
        })
    }
}

/// True if this Proxy refers to this Secret of its namespace in any way.
pub(crate) fn refers_to(spec: &egress_proxies_core::crd::ProxySpec, secret: &str) -> bool {
    let cloud_init =
        spec.cloud_init.as_ref().and_then(|it| it.secret_ref.as_ref()).map(|it| it.name.as_str());
    let auth = spec.auth.as_ref().map(|it| it.secret_ref.name.as_str());
    let ca = spec.health_check.ca_secret_ref.as_ref().map(|it| it.name.as_str());
    [cloud_init, auth, ca].into_iter().flatten().any(|name| name == secret)
}
