//! The built binary as one of several replicas, over a link to the API server of its own; and a place where
//! its probes end well.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::link::Link;
use super::wire::Wire;
use crate::operator::Bench;

/// No provider: for External Proxies.
const NO_PROVIDERS: &str = "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders: {}\n";
/// Compiled components, kept from run to run.
const COMPONENTS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/components");

/// Writes down the operator's pid and how it ended. Ends it when the test binary ends, however that ends.
const SUPERVISOR: &str = r#"
trap '' INT TERM HUP
(
  sh -c 'echo $$ >"$DIR/pid"; exec "$OPERATOR" run "$@"' operator "$@" </dev/null >"$DIR/log" 2>&1
  echo $? >"$DIR/exit"
) &
read -r _
[ -e "$DIR/exit" ] || kill -9 "$(cat "$DIR/pid")"
wait
rm -rf "$DIR"
"#;

/// A running operator. Dropping it kills it.
pub(crate) struct Replica {
    pub(crate) link: Link,
    dir: PathBuf,
    // Its standard input keeps the supervisor waiting.
    _supervisor: Child,
}

impl Replica {
    /// Looks at the bench's namespace alone, and has its Lease there.
    pub(crate) async fn start(bench: &Bench, name: &str) -> Self {
        Self::start_over(Link::to(&bench.config.cluster_url).await, bench, name)
    }

    /// With the rights of this user.
    pub(crate) async fn start_as(bench: &Bench, name: &str, user: &str) -> Self {
        let link = Link::to(&bench.config.cluster_url).await;
        let kubeconfig = kubeconfig(bench, &link).replace("user: {", &format!("user: {{as: {user}, "));
        Self::spawn(link, &kubeconfig, bench, name, NO_PROVIDERS)
    }

    /// With all rights, over this wire, and with this providers config.
    pub(crate) async fn start_with(wire: &Wire, bench: &Bench, name: &str, providers: &str) -> Self {
        let link = Link::to(&format!("http://{}", wire.address).parse().unwrap()).await;
        let kubeconfig = kubeconfig(bench, &link).replace("https://", "http://");
        Self::spawn(link, &kubeconfig, bench, name, providers)
    }

    /// With all rights, over this link, which may be cut.
    pub(crate) fn start_over(link: Link, bench: &Bench, name: &str) -> Self {
        let kubeconfig = kubeconfig(bench, &link);
        Self::spawn(link, &kubeconfig, bench, name, NO_PROVIDERS)
    }

    fn spawn(link: Link, access: &str, bench: &Bench, name: &str, config: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("epo-replica-").tempdir().unwrap().keep();
        let providers = dir.join("providers.yaml");
        fs::write(&providers, config).unwrap();
        let kubeconfig = dir.join("kubeconfig");
        fs::write(&kubeconfig, access).unwrap();
        // Ports that nobody else can take before it does; the log says which.
        let anywhere = "127.0.0.1:0";
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "operator", "--providers-config", &providers.display().to_string()])
            .args(["--namespaces", &bench.namespace, "--leader-lease-namespace", &bench.namespace])
            .args(["--instance", name, "--allow-local-endpoints", "--probe-url", "http://probe.invalid/"])
            .args(["--discovery-address", anywhere, "--metrics-address", anywhere])
            .args(["--probe-address", anywhere])
            .args(["--component-store", COMPONENTS])
            .env("OPERATOR", env!("CARGO_BIN_EXE_egress-proxies-operator"))
            .env("DIR", &dir)
            .env("KUBECONFIG", &kubeconfig)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { link, dir, _supervisor: supervisor }
    }

    pub(crate) fn pid(&self) -> String {
        fs::read_to_string(self.dir.join("pid")).unwrap().trim().to_owned()
    }

    /// Its exit code, if it has ended.
    pub(crate) fn has_ended(&self) -> Option<i32> {
        fs::read_to_string(self.dir.join("exit")).ok().and_then(|text| text.trim().parse().ok())
    }

    /// Where one of its servers listens, once it does.
    fn address(&self, server: &str) -> Option<SocketAddr> {
        let (log, named) = (self.log(), format!("server=\"{server}\""));
        let line = log.lines().find(|line| line.contains("listening") && line.contains(&named))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
    }

    /// Sends a signal, such as `KILL`.
    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([format!("-{name}"), self.pid()]).status().unwrap().success());
    }

    /// Waits until it has ended; answers with its exit code.
    pub(crate) async fn exit_code(&self, within: Duration) -> i32 {
        self.until("it has ended", within, async || self.has_ended()).await
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Waits until it gives leases: it leads, and knows the fleet. Answers how long that took.
    pub(crate) async fn leases(&self, within: Duration) -> Duration {
        let began = Instant::now();
        self.until("it gives a lease", within, async || (self.lease().await?.0 == 201).then_some(())).await;
        began.elapsed()
    }

    /// Status and text of a request for a lease, short-lived.
    pub(crate) async fn lease(&self) -> Option<(u16, String)> {
        self.api("POST", "/v1/leases", r#"{"ttlSeconds":1}"#).await
    }

    pub(crate) async fn list(&self) -> Option<(u16, String)> {
        self.api("GET", "/v1/proxies", "").await
    }

    /// Status and text of a request to the discovery and lease API.
    pub(crate) async fn api(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        ask(self.address("discovery API")?, method, path, body).await
    }

    /// Status and text of `/livez` or `/readyz`.
    pub(crate) async fn probe(&self, path: &str) -> Option<(u16, String)> {
        ask(self.address("probe server")?, "GET", path, "").await
    }

    /// Waits until `/readyz` is 200.
    pub(crate) async fn ready(&self) {
        let ready = async || (self.probe("/readyz").await?.0 == 200).then_some(());
        self.until("it is ready", Duration::from_secs(30), ready).await;
    }

    /// Waits until its log has this.
    pub(crate) async fn says(&self, text: &str, within: Duration) {
        self.until(text, within, async || self.log().contains(text).then_some(())).await;
    }

    /// How often its log has this.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.log().matches(text).count()
    }

    /// Waits until its log has this oftener than so many times.
    pub(crate) async fn says_again(&self, text: &str, before: usize, within: Duration) {
        self.until(text, within, async || (self.said(text) > before).then_some(())).await;
    }

    /// All metrics.
    pub(crate) async fn scrape(&self) -> Option<String> {
        let (status, text) = ask(self.address("metrics server")?, "GET", "/metrics", "").await?;
        (status == 200).then_some(text)
    }

    /// What the metric says.
    pub(crate) async fn leader_metric(&self) -> Option<String> {
        self.scrape()
            .await?
            .lines()
            .find_map(|line| line.strip_prefix("proxy_operator_leader "))
            .map(str::to_owned)
    }

    pub(crate) async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        mut probe: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + within;
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            assert!(Instant::now() < deadline, "not in {within:?}: {what}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// With all rights, over this link.
fn kubeconfig(bench: &Bench, link: &Link) -> String {
    let text = fs::read_to_string(&bench.kubeconfig).unwrap();
    let server = text.split('"').find(|part| part.starts_with("https://")).unwrap();
    text.replace(server, &format!("https://{}", link.address))
}

/// One request on a connection of its own; none if there was no answer in 2 s.
async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1)?.parse().ok()?;
        Some((status, text))
    };
    tokio::time::timeout(Duration::from_secs(2), exchange).await.ok()?
}

/// A forward proxy that answers every request itself, with 200.
pub(crate) struct Answering {
    pub(crate) port: u16,
    _tasks: JoinSet<()>,
}

impl Answering {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut answers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // Each by itself: whoever asks may be stopped before it has asked.
                answers.spawn(answer(stream));
                while answers.try_join_next().is_some() {}
            }
        });
        Self { port, _tasks: tasks }
    }
}

async fn answer(mut stream: TcpStream) {
    let mut head = [0; 4096];
    let _read = stream.read(&mut head).await;
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    let _written = stream.write_all(answer).await;
}
