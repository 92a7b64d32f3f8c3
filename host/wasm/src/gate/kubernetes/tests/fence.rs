//! What may leave while it is not certain that this process may act.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;

use http::{Method, Request};

use super::*;

pub(super) fn behind(fence: Fence, held: &Budget) -> Limits<'_> {
    Limits { timeout: Duration::from_secs(5), held, leave: leave(fence, &Method::POST) }
}

fn leave(fence: Fence, method: &Method) -> &'static Leave {
    Box::leak(Box::new(Leave::new(fence, method, "a request".to_owned())))
}

#[tokio::test]
async fn a_process_that_may_no_longer_act_by_the_time_there_is_room_sends_nothing() {
    for acts in [true, false] {
        let (access, recorder) = access(&[KubernetesResource::Pods]);
        let request = Request::post(format!("https://kubernetes.internal{PODS}"));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let body = Bytes::from(good_pod().to_string());
        let open = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&open);
        let fence = Fence::new(Arc::new(move || asked.load(Ordering::SeqCst)));
        let held = Budget::new(MOST_RESPONSE_BYTES);
        let another = held.take(1).unwrap();
        let errand = making();
        let sending = send(&access, &parts, body, &errand, behind(fence, &held));
        let meanwhile = async {
            tokio::task::yield_now().await;
            assert!(recorder.0.lock().unwrap().is_empty(), "there is no room yet");
            open.store(acts, Ordering::SeqCst);
            drop(another);
        };
        let (sent, ()) = tokio::join!(sending, meanwhile);
        assert_eq!(recorder.0.lock().unwrap().len(), usize::from(acts), "{sent:?}");
        assert!(acts || matches!(sent, Err(GateError::Failed(Error::ConnectionTerminated))), "{sent:?}");
    }
}

/// A transport that has no connection yet.
struct Connecting;

impl KubernetesTransport for Connecting {
    fn send(&self, _request: Request<Bytes>, _limits: SendLimits) -> Sending<'_> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_connection_is_given_up_when_the_process_may_no_longer_act() {
    for method in [Method::POST, Method::GET] {
        let access = Access::new(grant(&[KubernetesResource::Pods]), Arc::new(Connecting));
        let open = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&open);
        let held = Budget::new(MOST_RESPONSE_BYTES);
        let limits = Limits {
            leave: leave(Fence::new(Arc::new(move || asked.load(Ordering::SeqCst))), &method),
            ..limits(&held)
        };
        let (path, body) = if method == Method::POST {
            (PODS.to_owned(), good_pod().to_string())
        } else {
            (format!("{PODS}/px-1"), String::new())
        };
        let request = Request::builder().method(&method).uri(format!("https://kubernetes.internal{path}"));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let (began, errand) = (Instant::now(), making());
        let sending = send(&access, &parts, Bytes::from(body), &errand, limits);
        let meanwhile = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            open.store(false, Ordering::SeqCst);
        };
        let (sent, ()) = tokio::join!(sending, meanwhile);
        let given_up = began.elapsed() < Duration::from_millis(1500);
        assert_eq!(given_up, method == Method::POST, "a read may go on: {sent:?}");
        assert_eq!(limits.leave.has_refused(), given_up);
    }
}

/// A transport that is asked again when its connection is made, and would send then; the fence is shut meanwhile.
struct Stopped {
    open: Arc<AtomicBool>,
    polls: Arc<AtomicU32>,
}

impl KubernetesTransport for Stopped {
    fn send(&self, _request: Request<Bytes>, _limits: SendLimits) -> Sending<'_> {
        Box::pin(std::future::poll_fn(|cx| {
            if self.polls.fetch_add(1, Ordering::SeqCst) > 0 {
                return Poll::Ready(Err(TransportError::TooLarge));
            }
            self.open.store(false, Ordering::SeqCst);
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

#[tokio::test]
async fn a_process_that_was_stopped_while_its_request_waited_for_a_connection_does_not_send_it() {
    let (open, polls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let transport = Stopped { open: Arc::<AtomicBool>::clone(&open), polls: Arc::<AtomicU32>::clone(&polls) };
    let access = Access::new(grant(&[KubernetesResource::Pods]), Arc::new(transport));
    let held = Budget::new(MOST_RESPONSE_BYTES);
    let fence = Fence::new(Arc::new(move || open.load(Ordering::SeqCst)));
    let request = Request::post(format!("https://kubernetes.internal{PODS}"));
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let body = Bytes::from(good_pod().to_string());
    let errand = making();
    let sent = send(&access, &parts, body, &errand, behind(fence, &held)).await;
    assert!(matches!(sent, Err(GateError::Failed(Error::ConnectionTerminated))), "{sent:?}");
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}
