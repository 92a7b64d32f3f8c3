//! Sees to it that each call is recorded and its last words are written, however it ends: answered, judged
//! a fault by whoever reads the answer, or dropped in the middle.

use std::sync::Arc;

use egress_proxies_core::provider::{Failure, HostFault, Reason};
use tokio::time::Instant;

use super::mask::Mask;
use super::record::CallRecord;
use super::state::Words;
use super::{Instance, MOST_MESSAGE, Op};
use crate::gate::CallGate;
use crate::limits::{CpuMeter, Peak};

/// What a call that was dropped or cut off is recorded as.
const CANCELLED: &str = "cancelled";
/// What a call is recorded as that did what it was asked for.
const ANSWERED: &str = "answered";
/// What a call says that failed with a request that was not to leave.
const HELD_BACK: &str = "a request of the call was held back, since this process did not lead at that moment";

/// One call, from its first moment until it is recorded.
pub(super) struct Watch {
    pub(super) op: Op,
    pub(super) instance: Arc<Instance>,
    pub(super) began: Instant,
    pub(super) gate: Arc<CallGate>,
    pub(super) meter: Arc<CpuMeter>,
    pub(super) peak: Peak,
    pub(super) words: Words,
    pub(super) mask: Mask,
    pub(super) recorded: bool,
}

impl Watch {
    fn record(&mut self, outcome: &'static str) {
        self.recorded = true;
        self.instance.recorder.call(&CallRecord {
            provider: &self.instance.name,
            op: self.op.label(),
            outcome,
            elapsed: self.began.elapsed(),
            cpu: self.meter.spent(),
            memory_bytes: self.peak.bytes(),
            requests: self.gate.requests(),
            denied: self.gate.denial().is_some(),
        });
    }
}

/// What a call is counted as: a failure by its reason, whoever it is of.
fn outcome<T>(result: &Result<T, Failure>) -> &'static str {
    result.as_ref().map_or_else(|failure| failure.reason.label(), |_| ANSWERED)
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.words.close();
        if !self.recorded {
            self.record(CANCELLED);
        }
    }
}

/// A call that has ended, and has to be judged.
pub(crate) struct Ended<T> {
    pub(super) answer: Result<T, Failure>,
    pub(super) watch: Watch,
}

impl<T> Ended<T> {
    /// What the answer means. It is recorded with that, and secrets of the call are hidden in what failed.
    pub(crate) fn judged<U>(mut self, judge: impl FnOnce(T) -> Result<U, Failure>) -> Result<U, Failure> {
        let held_back = self.watch.gate.held_back();
        let result = self.answer.and_then(judge).map_err(|mut failure| {
            // Whatever the guest makes of it: it says nothing about the machine or its spec.
            if held_back && !matches!(failure.reason, Reason::Host(_)) {
                return Failure::new(Reason::Host(HostFault::HeldBack), HELD_BACK.to_owned());
            }
            failure.message = self.watch.mask.line(&failure.message, MOST_MESSAGE);
            failure
        });
        self.watch.record(outcome(&result));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use egress_proxies_core::ids::ProviderName;
    use http_body_util::{BodyExt, Full};

    use super::super::log::GuestLog;
    use super::super::record::NoRecorder;
    use super::super::state::GuestState;
    use super::*;
    use crate::config::{EgressAuth, EgressRule, Limits};
    use crate::gate::plain::PlainClient;
    use crate::gate::{Errand, Fence, Network, Policy, target};

    /// A call of a process that may act or may not, which sent one request.
    async fn ended(acts: bool, answer: Result<(), Failure>) -> Ended<()> {
        let name = ProviderName::parse("p").unwrap();
        let rule = EgressRule {
            origin: target::origin("http://127.0.0.1:9").unwrap(),
            methods: vec!["POST".into()],
            path_prefix: "/".into(),
            auth: EgressAuth::None,
            allow_cidrs: vec!["127.0.0.1/32".parse().unwrap()],
        };
        let policy = Policy::new(name.clone(), vec![rule], None, PlainClient::new().unwrap());
        let policy = Arc::new(policy.behind(Fence::new(Arc::new(move || acts))));
        let deadline = Instant::now() + Duration::from_secs(5);
        let gate = CallGate::new(Arc::clone(&policy), Network::Granted, Errand::Look, deadline);
        let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
        let request = http::Request::post("http://127.0.0.1:9/").body(body).unwrap();
        assert!(gate.send(request, None).await.is_err(), "held back, or nobody listens there");
        let log = GuestLog::new(name.clone(), "create", "r".to_owned(), Mask::default());
        let state = GuestState::new(Arc::clone(&gate), log, 1);
        let instance = Arc::new(Instance {
            name,
            config: String::new(),
            limits: Limits::default(),
            policy,
            namespace: None,
            recorder: Arc::new(NoRecorder),
        });
        let watch = Watch {
            op: Op::Create,
            instance,
            began: Instant::now(),
            gate,
            meter: CpuMeter::new(Duration::from_secs(1)),
            peak: state.limiter.peak(),
            words: state.words(),
            mask: Mask::default(),
            recorded: false,
        };
        Ended { answer, watch }
    }

    #[tokio::test]
    async fn a_failure_of_a_call_that_was_held_back_says_nothing_else_whatever_the_guest_makes_of_it() {
        let said = || Err::<(), _>(Failure::new(Reason::Permanent, "the zone does not exist"));
        for acts in [true, false] {
            let judged = ended(acts, Ok(())).await.judged(|()| said()).unwrap_err();
            let expected = if acts { Reason::Permanent } else { Reason::Host(HostFault::HeldBack) };
            assert_eq!(judged.reason, expected);
            assert_eq!(judged.message.contains("held back"), !acts, "{judged:?}");
        }
        assert!(ended(false, Ok(())).await.judged(Ok).is_ok(), "it may have done without");
        let trap = Failure::new(Reason::Host(HostFault::Trap), "trapped");
        let judged = ended(false, Err(trap.clone())).await.judged(Ok).unwrap_err();
        assert_eq!(judged.reason, trap.reason, "a fault of the guest stays one");
    }
}
