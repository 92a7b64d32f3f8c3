//! A real etcd and kube-apiserver for one test binary, on free ports of the loopback, in a temporary folder.
//!
//! The binaries come from the folder that `EPO_NODE_BIN` names (`make test` sets it); without it
//! [`ApiServer::shared`] says what is left out and returns `None`, so that `cargo test` alone passes on a
//! fresh clone. Both processes hang on a shell that waits for the end of its standard input: however the
//! test binary ends, the pipe closes, the shell kills them and removes the folder.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use base64::Engine;
use egress_proxies_core::crd::Proxy;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config, CustomResourceExt};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use tokio::sync::OnceCell;

const TOKEN: &str = "test-admin-token";
/// It starts in 1.5 s on an idle machine; one that compiles beside it takes its time.
const PATIENCE: Duration = Duration::from_mins(3);
static SHARED: OnceCell<Option<ApiServer>> = OnceCell::const_new();
static SKIPPED: Once = Once::new();
static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// Starts both, takes orders line by line, then kills both and cleans up. Keyboard interrupts reach the whole
/// process group: the shell ignores them so that it outlives the test binary by a moment.
const SUPERVISOR: &str = r#"
trap '' INT TERM HUP
cd "$DIR" || exit 1
start_etcd() {
  "$BIN/etcd" --data-dir "$DIR/etcd" --unsafe-no-fsync --log-level error \
    --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls "http://127.0.0.1:$PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
    --initial-cluster "default=http://127.0.0.1:$PEER_PORT" >>etcd.log 2>&1 </dev/null &
  etcd=$!
}
start_api() {
  "$BIN/kube-apiserver" --etcd-servers "http://127.0.0.1:$ETCD_PORT" --cert-dir "$DIR/certs" \
    --secure-port "$API_PORT" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 \
    --service-account-key-file "$DIR/sa.pub" --service-account-signing-key-file "$DIR/sa.key" \
    --service-account-issuer https://kubernetes.default.svc --token-auth-file "$DIR/tokens.csv" \
    --authorization-mode RBAC --service-cluster-ip-range 10.96.0.0/16 --allow-privileged \
    --endpoint-reconciler-type none >>apiserver.log 2>&1 </dev/null &
  apiserver=$!
}
start_etcd
start_api
while read -r order; do
  case "$order" in
    kill-api) kill -9 "$apiserver"; wait "$apiserver" ;;
    start-api) start_api ;;
    kill-etcd) kill -9 "$etcd"; wait "$etcd" ;;
    start-etcd) start_etcd ;;
    save-etcd) rm -rf saved; cp -r etcd saved ;;
    restore-etcd) rm -rf etcd; cp -r saved etcd ;;
  esac
  echo "$order"
done
kill -9 "$etcd" "$apiserver"
wait
rm -rf "$DIR"
"#;

/// The running pair.
#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(crate) url: String,
    dir: PathBuf,
    // Its standard input keeps the supervisor waiting, and brings it orders.
    pub(crate) supervisor: Mutex<Child>,
}

impl ApiServer {
    /// The server of this test binary, started at the first call, with the Proxy CRD installed. `None`, with
    /// a line that says so, where `EPO_NODE_BIN` is not set.
    pub(crate) async fn shared() -> Option<&'static Self> {
        SHARED.get_or_init(Self::start).await.as_ref()
    }

    pub(crate) async fn start() -> Option<Self> {
        let Some(bin) = node_binaries() else {
            SKIPPED.call_once(say_skipped);
            return None;
        };
        for name in ["etcd", "kube-apiserver"] {
            assert!(bin.join(name).exists(), "EPO_NODE_BIN={} has no {name}", bin.display());
        }
        let [etcd_port, peer_port, api_port] = free_ports();
        let dir = tempfile::Builder::new().prefix("epo-apiserver-").tempdir().unwrap().keep();
        std::fs::write(dir.join("tokens.csv"), format!("{TOKEN},admin,admin,system:masters\n")).unwrap();
        write_signing_keys(&dir);
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR])
            .env("BIN", &bin)
            .env("DIR", &dir)
            .env("ETCD_PORT", etcd_port.to_string())
            .env("PEER_PORT", peer_port.to_string())
            .env("API_PORT", api_port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let supervisor = Mutex::new(supervisor);
        let server = Self { url: format!("https://127.0.0.1:{api_port}"), dir, supervisor };
        server.write_kubeconfig();
        server.wait_until_ready().await;
        server.install_crd().await;
        Some(server)
    }

    /// A client with all rights. One per test: a client lives on the runtime that made it.
    pub(crate) fn client(&self) -> Client {
        Client::try_from(self.config()).unwrap()
    }

    /// How it is reached, with all rights.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.url.parse().unwrap());
        config.auth_info = AuthInfo { token: Some(TOKEN.to_owned().into()), ..AuthInfo::default() };
        config.accept_invalid_certs = true;
        config.default_retry = false;
        config
    }

    /// For programs that read one, such as the operator itself or kubectl.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// A new namespace with a name of its own.
    pub(crate) async fn namespace(&self, client: &Client, purpose: &str) -> String {
        let name = format!("{purpose}-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let namespaces = Api::all(client.clone());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match namespaces.create(&PostParams::default(), &namespace).await {
                Ok(_) => return name,
                // The answer to an earlier try was lost.
                Err(kube::Error::Api(status)) if status.code == 409 => return name,
                Err(error) if tokio::time::Instant::now() > deadline => panic!("namespace {name}: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
    }

    /// Waits until it serves everything.
    pub(crate) async fn wait_until_ready(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            match self.client().request_text(request).await {
                Ok(_) => return,
                Err(error) if tokio::time::Instant::now() > deadline || self.gave_up() => {
                    panic!("kube-apiserver did not become ready: {error}\n{}", self.log_tail())
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn install_crd(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client());
        let crd = Proxy::crd();
        let apply = PatchParams::apply("tests").force();
        crds.patch(Proxy::crd_name(), &apply, &Patch::Apply(&crd)).await.unwrap();
        let established = await_condition(crds, Proxy::crd_name(), conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await.expect("the CRD is established in time").unwrap();
    }

    fn write_kubeconfig(&self) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: \"{}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: admin, user: {{token: {TOKEN}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]\n",
            self.url
        );
        std::fs::write(self.kubeconfig(), text).unwrap();
    }

    fn gave_up(&self) -> bool {
        let failed = std::fs::read_to_string(self.dir.join("apiserver.log"))
            .is_ok_and(|log| log.contains("command failed"));
        failed || self.supervisor.lock().unwrap().try_wait().unwrap().is_some()
    }

    fn log_tail(&self) -> String {
        let tail = |name: &str| {
            let text = std::fs::read_to_string(self.dir.join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        format!("{}\n{}", tail("etcd.log"), tail("apiserver.log"))
    }
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment where the binaries are")]
fn node_binaries() -> Option<PathBuf> {
    std::env::var_os("EPO_NODE_BIN").map(|folder| Path::new(&folder).to_owned())
}

/// Not with `eprintln!`: what that says is shown only of tests that fail.
fn say_skipped() {
    writeln!(
        std::io::stderr(),
        "SKIPPED: no real API server, so that tests which need one pass without having run. Set EPO_NODE_BIN to a folder with etcd and kube-apiserver, or run `make test`."
    )
    .expect("standard error takes a line");
}

fn free_ports() -> [u16; 3] {
    // All are held until all are chosen, so that they differ.
    let listeners = [0; 3].map(|port: u16| TcpListener::bind(("127.0.0.1", port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// A pair of keys for service account tokens, made anew each time.
fn write_signing_keys(dir: &Path) {
    // DER of a P-256 SubjectPublicKeyInfo up to the point itself.
    const P256_HEADER: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
    let public = [P256_HEADER.as_slice(), pair.public_key().as_ref()].concat();
    let pem = |label: &str, der: &[u8]| {
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    };
    std::fs::write(dir.join("sa.key"), pem("PRIVATE KEY", pkcs8.as_ref())).unwrap();
    std::fs::write(dir.join("sa.pub"), pem("PUBLIC KEY", &public)).unwrap();
}
