//! Provider that runs one Squid pod per Proxy in the operator's own cluster.
//!
//! A machine is a Pod named after the Proxy's uid. Its Squid configuration is an annotation, which the pod
//! shows to Squid as a file. A machine that has secrets (`cloudInit`, `auth`) has a Secret of the same name
//! beside it, which the Pod owns; it can be created and never read: only create requests carry secrets.
//!
//! Without secrets the Pod is made in one request. With them it takes three steps, and any of them may be the
//! last before the component is stopped: the Pod, held back by a scheduling gate; the Secret, owned by the
//! Pod; the gate taken away. So a Pod without the gate is complete, one with it is being made, or, when older
//! than any call lasts, a rest that the operator is told to delete. A further create completes a rest that
//! has no Secret yet and is of the same request; any other it deletes, and the one after that starts anew.
//! With the Pod goes the Secret, by the cluster's own garbage collection.
//!
//! Must never touch a pod that lacks the owner tags, and never call a pod absent unless the API server
//! says so of that very pod.

mod api;
mod directives;
mod manifest;
mod meta;
mod networks;
mod pod;
mod provider;
mod settings;
mod squid;
mod tags;
mod users;

pub use provider::Kubernetes;

egress_proxies_provider_sdk::export_provider!(Kubernetes);
