//! A fake proxy: one script per accepted connection, and a record of what it was sent.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_proxies_core::crd::Mode;
use egress_proxies_core::facts::{Auth, CaPem, Machine, ProbePlan};
use egress_proxies_core::health::{Outcome, ProbeReason};
use egress_proxies_core::ids::Incarnation;
use egress_proxies_core::provider::{Credentials, Secret};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::clock::SystemClock;
use crate::health::{EndpointPolicy, HttpProber, ProbeTarget, Prober, SystemResolver};

/// A listener on loopback that runs a script on each connection.
pub(super) struct FakeProxy {
    pub(super) address: SocketAddr,
    /// Heads of the requests, in order, inside tunnels too.
    pub(super) heads: Heads,
    _tasks: JoinSet<()>,
}

pub(super) type Heads = Arc<Mutex<Vec<String>>>;

impl FakeProxy {
    pub(super) async fn serve<F, Fut>(script: F) -> Self
    where
        F: Fn(TcpStream, Heads) -> Fut + Send + 'static,
        Fut: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Heads::default();
        let mut tasks = JoinSet::new();
        let record = Arc::clone(&heads);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let conversation = script(stream, Arc::clone(&record));
                connections.spawn(async move {
                    // A prober that hangs up is part of many tests.
                    drop(conversation.await);
                });
            }
        });
        Self { address, heads, _tasks: tasks }
    }

    /// Answers every connection with these bytes and keeps it open.
    pub(super) async fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::serve(move |mut stream, heads| {
            let bytes = bytes.clone();
            async move {
                let head = read_head(&mut stream).await?;
                heads.lock().unwrap().push(head);
                stream.write_all(&bytes).await?;
                linger(&mut stream).await
            }
        })
        .await
    }

    /// Answers CONNECT with `reply`, then plays the target inside the tunnel.
    pub(super) async fn tunnel(reply: &'static str, target: Target) -> Self {
        Self::serve(move |mut stream, heads| {
            let target = target.clone();
            async move {
                let head = read_head(&mut stream).await?;
                heads.lock().unwrap().push(head);
                stream.write_all(reply.as_bytes()).await?;
                target.play(stream, heads).await
            }
        })
        .await
    }

    /// Answers with `start`, then with `flood` again and again, as fast as it is taken.
    pub(super) async fn flooding(start: &'static str, flood: &str) -> Self {
        let flood = flood.repeat(100);
        Self::serve(move |mut stream, _| {
            let flood = flood.clone();
            async move {
                read_head(&mut stream).await?;
                stream.write_all(start.as_bytes()).await?;
                loop {
                    stream.write_all(flood.as_bytes()).await?;
                }
            }
        })
        .await
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Waits until the other side hangs up.
pub(super) async fn linger(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut sink = [0_u8; 256];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// A TLS server that answers one request per connection.
#[derive(Clone)]
pub(super) struct Target {
    config: Arc<ServerConfig>,
    answer: &'static str,
    /// The CA that signed its certificate.
    pub(super) ca_pem: String,
}

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
pub(super) const OPENED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

impl Target {
    /// With a valid certificate for `host` and this answer.
    pub(super) fn named(host: &str, answer: &'static str) -> Self {
        Self::with(&CertificateParams::new(vec![host.to_owned()]).unwrap(), answer)
    }

    pub(super) fn with(params: &CertificateParams, answer: &'static str) -> Self {
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority_certificate = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Self { config: Arc::new(config), answer, ca_pem: authority_certificate.pem() }
    }

    pub(super) async fn play(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        heads: Heads,
    ) -> io::Result<()> {
        let mut stream = TlsAcceptor::from(self.config).accept(stream).await?;
        let head = read_head(&mut stream).await?;
        heads.lock().unwrap().push(head);
        stream.write_all(self.answer.as_bytes()).await?;
        stream.flush().await?;
        linger(&mut stream).await
    }
}

/// What a test asks: the target of a probe and the prober.
pub(super) struct Probe {
    pub(super) target: ProbeTarget,
    pub(super) policy: EndpointPolicy,
}

impl Probe {
    pub(super) fn of(proxy: SocketAddr, url: &str) -> Self {
        let plan = ProbePlan {
            url: url.to_owned(),
            expected_status: vec![200],
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(5),
            success_threshold: 1,
            failure_threshold: 3,
            networks: Arc::default(),
            ca_pem: None,
            insecure_skip_verify: false,
        };
        let machine = Machine {
            incarnation: Incarnation::parse("m1").unwrap(),
            address: proxy.ip().to_string(),
            port: proxy.port(),
        };
        let target = ProbeTarget { machine, mode: Mode::External, auth: Auth::None, plan };
        Self { target, policy: EndpointPolicy::Everywhere }
    }

    pub(super) fn trusting(mut self, ca_pem: &str) -> Self {
        self.target.plan.ca_pem = Some(CaPem::Read(ca_pem.to_owned()));
        self
    }

    pub(super) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.target.plan.timeout = timeout;
        self
    }

    pub(super) fn with_password(mut self, username: &str, password: &str) -> Self {
        self.target.auth = Auth::Known(Credentials {
            username: Secret::new(username.to_owned()),
            password: Secret::new(password.to_owned()),
        });
        self
    }

    pub(super) async fn run(&self) -> Outcome {
        let prober = HttpProber::new(SystemClock::start(), self.policy.clone(), Arc::new(SystemResolver));
        prober.probe(self.target.clone()).await
    }

    pub(super) async fn expect_ok(&self) {
        let outcome = self.run().await;
        assert!(matches!(outcome, Outcome::Passed { .. }), "{outcome:?}");
    }

    /// Fails for this reason; returns the message.
    pub(super) async fn expect(&self, expected: ProbeReason) -> String {
        match self.run().await {
            Outcome::Failed { reason, message } if reason == expected => message,
            other @ (Outcome::Passed { .. } | Outcome::Failed { .. }) => {
                panic!("expected {expected}, got {other:?}")
            }
        }
    }
}
