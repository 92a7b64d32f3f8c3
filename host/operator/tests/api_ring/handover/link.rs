//! The network between one operator and the API server: a TCP relay that can be cut, slowed down, or lose the
//! connections it has without telling anybody.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

#[derive(Debug, Clone, Copy, Default)]
struct State {
    cut: bool,
    delay: Duration,
    /// Connections of an earlier epoch are dead.
    epoch: u64,
}

/// The relay. Dropping it closes all connections.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
    _tasks: JoinSet<()>,
}

impl Link {
    /// To this URL's host and port.
    pub(crate) async fn to(url: &http::Uri) -> Self {
        let server = format!("{}:{}", url.host().unwrap(), url.port_u16().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, watched) = watch::channel(State::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(listener, server, watched));
        Self { address, state, _tasks: tasks }
    }

    /// The URL that leads over this link.
    pub(crate) fn url(&self) -> http::Uri {
        format!("https://{}", self.address).parse().unwrap()
    }

    /// Nothing passes any more, and nobody is told.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cut = true);
    }

    /// Everything passes again, what was held up as well.
    pub(crate) fn heal(&self) {
        self.state.send_modify(|state| state.cut = false);
    }

    /// New connections pass; those that were there stay dead and open.
    pub(crate) fn heal_for_new_connections(&self) {
        self.state.send_modify(|state| {
            state.epoch += 1;
            state.cut = false;
        });
    }

    /// Everything takes so much longer, each way.
    pub(crate) fn slow(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }
}

async fn relay(listener: TcpListener, server: String, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (server, state) = (server.clone(), state.clone());
        connections.spawn(async move {
            let epoch = state.borrow().epoch;
            passes(&mut state.clone(), epoch).await;
            let Ok(upstream) = TcpStream::connect(server).await else { return };
            let (client_reads, client_writes) = client.into_split();
            let (server_reads, server_writes) = upstream.into_split();
            tokio::select! {
                () = pass(client_reads, server_writes, state.clone(), epoch) => {}
                () = pass(server_reads, client_writes, state.clone(), epoch) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    epoch: u64,
) {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut piece).await.unwrap_or(0);
        passes(&mut state, epoch).await;
        let delay = state.borrow().delay;
        tokio::time::sleep(delay).await;
        if read == 0 || to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}

/// Waits while nothing passes; for ever, if the connection is dead.
async fn passes(state: &mut watch::Receiver<State>, epoch: u64) {
    // An error: the link is gone, and so is this task soon.
    let _open = state.wait_for(|state| !state.cut && state.epoch == epoch).await;
}
