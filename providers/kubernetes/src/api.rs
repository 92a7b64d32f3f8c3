//! The requests to the API server that this provider makes: these and no others.
//!
//! Pods of one namespace are read, created, deleted and relieved of their gate; a Secret can only be
//! created.

use egress_proxies_provider_sdk::failure;
use egress_proxies_provider_sdk::kubernetes::ORIGIN;
use egress_proxies_provider_sdk::model::Failure;
use egress_proxies_provider_sdk::{Call, Method, Request, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

const JSON: &str = "application/json";
/// Characters of a query value that need no encoding (RFC 3986, unreserved).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How long a pod that is deleted may take to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grace {
    /// As its manifest says; it goes once its kubelet confirms that nothing of it runs.
    OfThePod,
    /// It goes at once, whatever becomes of its containers.
    None,
}

/// The part of the API that one namespace's machines live in.
pub(crate) struct Api<'a> {
    call: &'a Call<'a>,
    namespace: &'a str,
}

/// Everything this provider asks for lies under this path.
pub(crate) fn path_prefix(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/")
}

impl<'a> Api<'a> {
    pub(crate) fn new(call: &'a Call<'a>, namespace: &'a str) -> Self {
        Self { call, namespace }
    }

    fn request(&self, method: Method, path: &str) -> Request {
        Request::new(method, ORIGIN, format!("{}{path}", path_prefix(self.namespace))).header("accept", JSON)
    }

    fn send(&self, what: &str, request: &Request) -> Result<Response, Failure> {
        self.call.host.send(request).map_err(|error| failure::unanswered(what, &error))
    }

    pub(crate) fn get_pod(&self, name: &str) -> Result<Response, Failure> {
        self.send("looking at the pod", &self.request(Method::Get, &format!("pods/{name}")))
    }

    pub(crate) fn create_pod(&self, pod: &Value) -> Result<Response, Failure> {
        self.send("creating the pod", &self.request(Method::Post, "pods").body(JSON, pod.to_string()))
    }

    pub(crate) fn create_secret(&self, secret: &Value) -> Result<Response, Failure> {
        self.send(
            "creating the Secret",
            &self.request(Method::Post, "secrets").body(JSON, secret.to_string()),
        )
    }

    pub(crate) fn patch_pod(&self, name: &str, patch: &Value) -> Result<Response, Failure> {
        let request = self.request(Method::Patch, &format!("pods/{name}"));
        self.send("starting the pod", &request.body("application/merge-patch+json", patch.to_string()))
    }

    /// Only the pod with this uid.
    pub(crate) fn delete_pod(&self, name: &str, uid: &str, grace: Grace) -> Result<Response, Failure> {
        let mut options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid}, "propagationPolicy": "Background",
        });
        match grace {
            Grace::OfThePod => {}
            Grace::None => options["gracePeriodSeconds"] = json!(0),
        }
        let request = self.request(Method::Delete, &format!("pods/{name}"));
        self.send("deleting the pod", &request.body(JSON, options.to_string()))
    }

    pub(crate) fn list_pods(
        &self,
        selector: &str,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Response, Failure> {
        let mut path = format!("pods?limit={limit}");
        for (key, value) in [("labelSelector", Some(selector)), ("continue", cursor)] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                path = format!("{path}&{key}={}", utf8_percent_encode(value, QUERY));
            }
        }
        self.send("listing pods", &self.request(Method::Get, &path))
    }
}
