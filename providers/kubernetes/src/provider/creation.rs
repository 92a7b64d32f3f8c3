//! `create`: the Pod; if it has secrets, a gated Pod, its Secret, the gate taken away.
//!
//! Any step may be the last one before the component is stopped, so each has to cope with what an earlier
//! call left. Must never complete a pod of another request, and never leave a pod without its gate before
//! its Secret is there.

use std::time::Duration;

use egress_proxies_provider_sdk::Call;
use egress_proxies_provider_sdk::failure;
use egress_proxies_provider_sdk::kubernetes;
use egress_proxies_provider_sdk::model::{CreateRequest, Failure, Instance, Level, Reason};

use super::{find, read_pod};
use crate::api::{Api, Grace};
use crate::manifest;
use crate::pod::Pod;
use crate::settings::Settings;
use crate::tags;

/// How often, and with what pause, the Secret of a predecessor is given the time to go.
const SECRET_TRIES: usize = 10;
const SECRET_PAUSE: Duration = Duration::from_millis(500);
/// Time that cleaning up after a failed create may need.
const UNDO_TIME: Duration = Duration::from_secs(2);
/// Bytes of salt: sixteen characters in the hash.
const SALT_BYTES: usize = 12;

/// One create call.
pub(super) struct Creation<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) api: Api<'a>,
    pub(super) namespace: &'a str,
    pub(super) request: &'a CreateRequest,
    pub(super) settings: Settings,
}

impl Creation<'_> {
    pub(super) fn run(&self) -> Result<Instance, Failure> {
        let pod = self.pod()?;
        if !pod.is_gated() {
            return Ok(pod.instance(self.call.host.now()));
        }
        if !self.is_of_this_request(&pod) {
            // Completed, it would run what is asked for now under the tags of what was asked for then.
            self.undo(&pod);
            return Err(failure::new(
                Reason::Busy,
                "an unfinished pod of an earlier request is being deleted",
            ));
        }
        Ok(self.complete(&pod)?.instance(self.call.host.now()))
    }

    /// Its main configuration too: it names the files of a Secret that is made from this request.
    fn is_of_this_request(&self, pod: &Pod) -> bool {
        let tags = pod.tags();
        let main = manifest::main_config(self.request, &self.settings);
        self.request.tags.iter().all(|tag| tags.contains(tag)) && pod.main_config() == Some(main.as_str())
    }

    /// The Pod of this name: a new one, or ours that is there already.
    fn pod(&self) -> Result<Pod, Failure> {
        let manifest = manifest::pod(self.namespace, self.request, &self.settings);
        let lost = match self.api.create_pod(&manifest) {
            Ok(response) if response.is_success() => return read_pod("creating the pod", &response),
            Ok(response) if response.status == 409 => None,
            Ok(response) => return Err(kubernetes::failure("creating the pod", &response)),
            // Nothing was sent, or there is no time left to look.
            Err(failure) if failure.reason == Reason::Denied => return Err(failure),
            Err(failure) => Some(failure),
        };
        match find(&self.api, &self.request.name)? {
            Some(pod) => self.ours(pod),
            None => {
                Err(lost.unwrap_or_else(|| failure::new(Reason::Busy, "a pod of this name has just gone")))
            }
        }
    }

    fn ours(&self, pod: Pod) -> Result<Pod, Failure> {
        if !tags::are_owned(&pod.tags(), &self.request.owner) {
            let message = format!("pod {} exists and is not this Proxy's; rename or delete it", pod.id());
            return Err(failure::new(Reason::NameTaken, message));
        }
        if pod.is_being_deleted() {
            return Err(failure::new(Reason::Busy, "the pod of this name is being deleted"));
        }
        Ok(pod)
    }

    /// Secret and gate. If either fails the Pod is deleted again: it is no use, and the next try is clean.
    fn complete(&self, pod: &Pod) -> Result<Pod, Failure> {
        self.secret(pod).and_then(|()| self.ungate(pod)).inspect_err(|_| self.undo(pod))
    }

    /// A Secret of that name may be this pod's, from a call that was cut off, or the predecessor's, which
    /// the garbage collector is about to delete. It cannot be read to tell, so the predecessor's is given
    /// time to go, and if it stays, the pod goes, takes its own along, and the next try is clean.
    fn secret(&self, pod: &Pod) -> Result<(), Failure> {
        let salt = self.call.host.random(SALT_BYTES);
        let secret = manifest::secret(self.namespace, self.request, &pod.metadata.uid, &salt)?;
        for _ in 0..SECRET_TRIES {
            let response = self.api.create_secret(&secret)?;
            if response.is_success() {
                return Ok(());
            }
            if response.status != 409 {
                return Err(kubernetes::failure("creating the Secret", &response));
            }
            if self.call.host.left() < SECRET_PAUSE + UNDO_TIME {
                break;
            }
            self.call.host.pause(SECRET_PAUSE);
        }
        Err(failure::new(Reason::Busy, "the Secret of an earlier pod of this name has not gone yet"))
    }

    fn ungate(&self, pod: &Pod) -> Result<Pod, Failure> {
        let response = self.api.patch_pod(&pod.metadata.name, &manifest::ungate(&pod.metadata.uid))?;
        match response.status {
            200..300 => read_pod("starting the pod", &response),
            // Gone, or another pod has its place: its uid cannot be changed, which is called invalid. The
            // patch itself is always the same, so nobody's input is at fault.
            404 | 409 | 422 => {
                let what = "the pod was deleted while it was being made";
                Err(Failure {
                    reason: Reason::Busy,
                    message: what.to_owned(),
                    ..kubernetes::failure(what, &response)
                })
            }
            _ => Err(kubernetes::failure("starting the pod", &response)),
        }
    }

    /// Best effort: what stays is reported as failed once it is old enough.
    fn undo(&self, pod: &Pod) {
        let result = self.api.delete_pod(&pod.metadata.name, &pod.metadata.uid, Grace::OfThePod);
        if !matches!(&result, Ok(response) if response.is_success()) {
            self.call.host.log(Level::Warn, "an unfinished pod could not be deleted", &[("pod", &pod.id())]);
        }
    }
}
