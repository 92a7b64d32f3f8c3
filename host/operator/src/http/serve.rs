//! Serves a router over TCP with bounds: connections, time to send a header, time to take an answer, time to
//! finish at the end.
//!
//! `axum::serve` has none of these; one client that opens sockets and says nothing would hold them for ever.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Time for the whole header of a request, counted from the end of the request before it, so that it
    /// bounds idle connections too.
    pub header_read: Duration,
    /// Time that a client may take none of its answer; without it, one that never reads would hold its
    /// connection for ever.
    pub write: Duration,
    /// Time for requests under way once the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            header_read: Duration::from_secs(30),
            write: Duration::from_secs(30),
            drain: Duration::from_secs(10),
        }
    }
}

/// Longest header of a request.
const MAX_HEADER: usize = 32 * 1024;
/// Pause after a failed accept: when file descriptors run out, trying again at once only burns time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves until cancelled, then lets requests under way finish within the limit.
///
/// # Errors
/// If the listener's own address cannot be read. A failed accept is logged and tried again.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) -> Result<(), io::Error> {
    debug!(address = %listener.local_addr()?, "listening");
    let permits = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        // The permit comes before the accept: what is not accepted costs nothing.
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &permits) => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, permit)) => {
                connections.spawn(connection(stream, router.clone(), limits, stop.clone(), permit));
            }
            Err(fault) => {
                warn!(%fault, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Result<(TcpStream, OwnedSemaphorePermit), io::Error> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    permit: OwnedSemaphorePermit,
) {
    if let Err(fault) = stream.set_nodelay(true) {
        debug!(%fault, "cannot turn off delays");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_buf_size(MAX_HEADER)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            timeout(limits.drain, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(fault) = ended {
        debug!(%fault, "a connection ended early");
    }
    drop(permit);
}
