//! A relay between the operator and the API server. It can forget connections without a word, as a router does,
//! close them all, and refuse new ones.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What becomes of connections.
#[derive(Debug, Clone, Copy, Default)]
struct Orders {
    /// Connections with a number below this one carry nothing any more; neither end is told.
    silent_below: u64,
    /// Those below this one are closed.
    closed_below: u64,
    /// New ones are closed at once.
    refuse: bool,
}

/// The relay; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    orders: watch::Sender<Orders>,
    opened: watch::Receiver<u64>,
    _task: JoinSet<()>,
}

impl Relay {
    /// In front of `https://host:port`.
    pub(crate) async fn to(url: &str) -> Self {
        let target: Arc<str> = url.trim_start_matches("https://").into();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (orders, obeyed) = watch::channel(Orders::default());
        let (count, opened) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                count.send_modify(|count| *count += 1);
                connections.spawn(carry(client, Arc::clone(&target), *count.borrow(), obeyed.clone()));
            }
        });
        Self { address, orders, opened, _task: task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections ever opened.
    pub(crate) fn opened(&self) -> u64 {
        *self.opened.borrow()
    }

    /// All connections there are carry nothing from now on, and stay open; new ones work.
    pub(crate) fn forget_all(&self) {
        let below = self.opened() + 1;
        self.orders.send_modify(|orders| orders.silent_below = below);
    }

    /// All connections there are end; new ones work.
    pub(crate) fn close_all(&self) {
        let below = self.opened() + 1;
        self.orders.send_modify(|orders| orders.closed_below = below);
    }

    /// Nobody gets through, until [`Relay::admit`].
    pub(crate) fn refuse(&self) {
        self.orders.send_modify(|orders| orders.refuse = true);
        self.close_all();
    }

    pub(crate) fn admit(&self) {
        self.orders.send_modify(|orders| orders.refuse = false);
    }
}

async fn carry(mut client: TcpStream, target: Arc<str>, number: u64, mut orders: watch::Receiver<Orders>) {
    if orders.borrow().refuse {
        return;
    }
    let Ok(mut server) = TcpStream::connect(&*target).await else { return };
    let concerned = |orders: &Orders| number < orders.silent_below || number < orders.closed_below;
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = orders.wait_for(concerned) => {}
    }
    // Both ends stay open and hear nothing.
    drop(orders.wait_for(|orders| number < orders.closed_below).await);
}
