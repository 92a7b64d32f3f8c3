//! The way of one process to the API server, request by request: each takes its time, is written down, and comes to
//! its end whatever becomes of the process that sent it, as in a network. The way to the cloud, which is what the
//! provider asks, can be left open while all else is cut off. Plain HTTP on the side of the process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Requests of the operator are far smaller.
const LARGEST: usize = 4 << 20;

type Answer = http::Response<axum::body::Body>;

/// One request, and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    method: Method,
    path: String,
    /// It is the provider's, not the operator's own.
    pub(crate) is_of_cloud: bool,
    pub(crate) sent: Instant,
    /// When the API server got it.
    pub(crate) arrived: Option<Instant>,
    /// What the API server answered.
    status: Option<StatusCode>,
}

impl Asked {
    /// It asks for a Pod to be made.
    pub(crate) fn creates(&self) -> bool {
        self.is_of_cloud && self.method == Method::POST && self.path.ends_with("/pods")
    }

    pub(crate) fn has_made(&self) -> bool {
        self.creates() && self.status == Some(StatusCode::CREATED)
    }

    /// It writes down what the operator knows of a Proxy.
    pub(crate) fn records(&self) -> bool {
        !self.method.is_safe() && self.path.contains("/proxies/") && self.path.ends_with("/status")
    }

    /// It changes anything, other than the Lease, which is guarded by its version.
    pub(crate) fn changes(&self) -> bool {
        !self.method.is_safe() && !self.path.contains("/leases")
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// Each direction takes so long.
    slow: Duration,
    /// Only the provider gets through.
    cloud_only: bool,
}

struct Road {
    client: Client,
    way: watch::Receiver<Way>,
    asked: Mutex<Vec<Asked>>,
    trips: mpsc::Sender<BoxFuture<'static, ()>>,
}

/// The wire. Dropping it ends what is on it.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    way: watch::Sender<Way>,
    road: Arc<Road>,
    _tasks: JoinSet<()>,
}

impl Wire {
    /// To the API server that this leads to, with its rights.
    pub(crate) async fn to(config: Config) -> Self {
        let (way, watched) = watch::channel(Way::default());
        let (trips, mut begun) = mpsc::channel::<BoxFuture<'static, ()>>(64);
        let client = Client::try_from(config).unwrap();
        let road = Arc::new(Road { client, way: watched, asked: Mutex::default(), trips });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(take).with_state(Arc::clone(&road));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        tasks.spawn(async move {
            let mut under_way = JoinSet::new();
            while let Some(trip) = begun.recv().await {
                under_way.spawn(trip);
                while under_way.try_join_next().is_some() {}
            }
        });
        Self { address, way, road, _tasks: tasks }
    }

    /// Each direction of each request takes so long from now on.
    pub(crate) fn slow(&self, each: Duration) {
        self.way.send_modify(|way| way.slow = each);
    }

    /// Only the provider gets through from now on; what else is sent, asked or told waits.
    pub(crate) fn cut_off_but_from_the_cloud(&self) {
        self.way.send_modify(|way| way.cloud_only = true);
    }

    /// All gets through, what waited as well.
    pub(crate) fn heal(&self) {
        self.way.send_modify(|way| way.cloud_only = false);
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.road.asked.lock().unwrap().clone()
    }
}

/// What is taken in goes its way, also if the process is gone before it is answered.
async fn take(State(road): State<Arc<Road>>, request: axum::extract::Request) -> Answer {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, LARGEST).await else { return StatusCode::BAD_REQUEST.into_response() };
    let (tell, told) = oneshot::channel();
    let trip = Arc::clone(&road).carry(http::Request::from_parts(parts, Body::from(bytes)));
    let trip = async move { drop(tell.send(trip.await)) }.boxed();
    drop(road.trips.send(trip).await);
    told.await.unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
}

impl Road {
    async fn carry(self: Arc<Self>, mut request: http::Request<Body>) -> Answer {
        let number = self.note(&request);
        let is_of_cloud = is_of_cloud(request.headers());
        request.headers_mut().remove(header::HOST);
        let mut way = self.way.clone();
        travel(&mut way, is_of_cloud).await;
        self.asked.lock().unwrap()[number].arrived = Some(Instant::now());
        let Ok(answer) = self.client.send(request).await else {
            return StatusCode::BAD_GATEWAY.into_response();
        };
        self.asked.lock().unwrap()[number].status = Some(answer.status());
        travel(&mut way, is_of_cloud).await;
        let (mut parts, body) = answer.into_parts();
        for of_a_connection in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
            parts.headers.remove(of_a_connection);
        }
        // Piece by piece: a watch has no end.
        let pieces = stream::unfold((body, way), move |(mut body, mut way)| async move {
            let piece = body.frame().await?;
            passes(&mut way, is_of_cloud).await;
            Some((piece.map(|piece| piece.into_data().unwrap_or_default()), (body, way)))
        });
        http::Response::from_parts(parts, axum::body::Body::from_stream(pieces))
    }

    /// Writes the request down; its number.
    fn note(&self, request: &http::Request<Body>) -> usize {
        let mut asked = self.asked.lock().unwrap();
        asked.push(Asked {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            is_of_cloud: is_of_cloud(request.headers()),
            sent: Instant::now(),
            arrived: None,
            status: None,
        });
        asked.len() - 1
    }
}

/// The provider acts as its ServiceAccount.
fn is_of_cloud(headers: &HeaderMap) -> bool {
    headers.contains_key("impersonate-user")
}

async fn travel(way: &mut watch::Receiver<Way>, is_of_cloud: bool) {
    let slow = way.borrow().slow;
    tokio::time::sleep(slow).await;
    passes(way, is_of_cloud).await;
}

/// Waits while nothing passes.
async fn passes(way: &mut watch::Receiver<Way>, is_of_cloud: bool) {
    // An error: the wire is gone, and so is this task soon.
    let _open = way.wait_for(|way| is_of_cloud || !way.cloud_only).await;
}
