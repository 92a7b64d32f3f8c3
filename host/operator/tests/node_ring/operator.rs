//! The operator as a process, with the rights that `deploy/base` gives it, and the page at the far end.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::cluster::{Answer, Settings, condition, curl, settings, wait_for};

const SYSTEM: &str = "egress-proxies-operator-system";
/// Where the provider makes its pods.
pub(crate) const PODS: &str = "egress-proxies";
/// Of the discovery API.
pub(crate) const TOKEN: &str = "node-ring-token";
static SHARED: OnceLock<Option<Ring>> = OnceLock::new();
static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// Ends the operator when the test binary ends, however it ends: the pipe closes then.
const SUPERVISOR: &str = r#"trap '' INT TERM HUP; "$OPERATOR" run "$@" </dev/null >"$LOG" 2>&1 & child=$!; read -r _; kill "$child"; wait"#;

/// A cluster with the operator in it.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) cluster: Settings,
    /// URL of the page that every proxy can fetch.
    pub(crate) page: String,
    api: String,
    log: PathBuf,
    // Its standard input keeps the supervisor waiting.
    _supervisor: Child,
}

/// The ring of this test binary, or `None` with a line that says what is left out.
pub(crate) fn ring() -> Option<&'static Ring> {
    SHARED.get_or_init(|| settings().map(Ring::start)).as_ref()
}

impl Ring {
    fn start(cluster: Settings) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let file = |path: &str| root.join(path).display().to_string();
        cluster.kubectl(&["apply", "-f", &file("crds")]);
        cluster.kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd/proxies.crawl.example.com",
            "--timeout=60s",
        ]);
        cluster.kubectl(&["apply", "-f", &file("deploy/base")]);
        cluster.kubectl(&["apply", "-f", &file("dev/demo/probe-target.yaml")]);
        cluster.kubectl(&[
            "-n",
            SYSTEM,
            "wait",
            "--for=condition=Ready",
            "pod/probe-target",
            "--timeout=120s",
        ]);
        let address = cluster.kubectl(&[
            "-n",
            SYSTEM,
            "get",
            "service",
            "probe-target",
            "-o",
            "jsonpath={.spec.clusterIP}",
        ]);
        let page = format!("http://{address}/");
        let [api, metrics, probes] = free_addresses();
        let dir = tempfile::Builder::new().prefix("epo-node-ring-").tempdir().expect("a folder").keep();
        write_config(&cluster, &dir, &page);
        let log = dir.join("operator.log");
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "operator"])
            .args(["--providers-config", &dir.join("providers.yaml").display().to_string()])
            .args(["--discovery-address", &api, "--metrics-address", &metrics, "--probe-address", &probes])
            // Faster than the defaults, so that the tests take seconds.
            .args(["--drift-poll", "5s", "--provisioning-poll", "1s", "--deletion-poll", "1s"])
            .env("OPERATOR", env!("CARGO_BIN_EXE_egress-proxies-operator"))
            .env("LOG", &log)
            .env("KUBECONFIG", dir.join("kubeconfig"))
            .env("DISCOVERY_TOKEN", TOKEN)
            // Neither the API server nor a probe may go there.
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("HTTP_PROXY", "http://127.0.0.1:9")
            .stdin(Stdio::piped())
            .spawn()
            .expect("the operator starts");
        let ring = Self { cluster, page, api: format!("http://{api}"), log, _supervisor: supervisor };
        wait_for("the operator is ready", || match curl(&[&format!("http://{probes}/readyz")]) {
            Answer { status: 200, .. } => Ok(()),
            other => Err(format!("{other:?}\n{}", ring.log_text())),
        });
        ring
    }

    /// A new namespace for one test.
    pub(crate) fn namespace(&self, purpose: &str) -> Namespace {
        let name = format!("{purpose}-{}-{}", std::process::id(), NAMESPACES.fetch_add(1, Ordering::Relaxed));
        self.cluster.kubectl(&["create", "namespace", &name]);
        Namespace { ring: ring().expect("it is running"), name }
    }

    /// Calls the discovery API with its token.
    pub(crate) fn api(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        let url = format!("{}{path}", self.api);
        let auth = format!("Authorization: Bearer {TOKEN}");
        let mut arguments = vec!["-X", method, "-H", &auth, &url];
        if let Some(body) = body {
            arguments.extend(["-H", "Content-Type: application/json", "-d", body]);
        }
        curl(&arguments)
    }

    /// What the operator has logged.
    pub(crate) fn log_text(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The pod of a Proxy, by its uid.
    pub(crate) fn pod(&self, proxy: &Value) -> Option<Value> {
        self.cluster.get(PODS, "pod", &format!("px-{}", proxy["metadata"]["uid"].as_str()?))
    }
}

/// A namespace that is deleted at the end of its test.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) ring: &'static Ring,
    pub(crate) name: String,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (ok, said) =
            self.ring.cluster.try_kubectl(&["delete", "namespace", &self.name, "--timeout=100s"]);
        assert!(ok || std::thread::panicking(), "namespace {} is not deleted: {said}", self.name);
    }
}

impl Namespace {
    /// Applies a Proxy with this spec (YAML, two spaces in).
    pub(crate) fn proxy(&self, name: &str, spec: &str) {
        self.ring.cluster.apply(&format!(
            "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {{ name: {name}, namespace: {} }}\nspec:\n{spec}",
            self.name
        ));
    }

    /// The Proxy as it is.
    pub(crate) fn get(&self, name: &str) -> Value {
        self.ring.cluster.get(&self.name, "px", name).expect("the Proxy is there")
    }

    /// Waits for a condition's status; gives the Proxy then.
    pub(crate) fn wait(&self, name: &str, kind: &str, status: &str) -> Value {
        wait_for(&format!("{name} is {kind}={status}"), || {
            let proxy = self.get(name);
            if condition(&proxy, kind).0 == status { Ok(proxy) } else { Err(proxy["status"].to_string()) }
        })
    }

    /// Waits until another machine than `before` is Ready; gives the Proxy then.
    pub(crate) fn wait_for_another(&self, name: &str, before: &Value) -> Value {
        wait_for("another machine is Ready", || {
            let proxy = self.get(name);
            let other = proxy["status"]["incarnation"] != before["status"]["incarnation"];
            if other && condition(&proxy, "Ready").0 == "True" {
                Ok(proxy)
            } else {
                Err(proxy["status"].to_string())
            }
        })
    }
}

fn write_config(cluster: &Settings, dir: &Path, page: &str) {
    let pods =
        cluster.kubectl(&["-n", SYSTEM, "get", "pod", "probe-target", "-o", "jsonpath={.status.podIP}"]);
    let range = pods.rsplitn(3, '.').last().expect("an IPv4 address").to_owned();
    let provider = |name: &str, config: &str| {
        format!(
            "  {name}:\n    source: {{ file: kubernetes.wasm }}\n    config: {{ {config} }}\n    \
             kubernetes: {{ namespace: {PODS}, serviceAccount: egress-proxies-provider, resources: [pods, secrets] }}\n    \
             healthCheck: {{ url: \"{page}\" }}\n    attributes: {{ geo: local }}\n    addressCidrs: [\"{range}.0.0/16\"]\n    \
             replacement: {{ maxUnavailable: 100% }}\n" // tests run side by side, on machines of one provider
        )
    };
    let config = format!(
        "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n{}{}",
        provider("kubernetes", "imagePullPolicy: IfNotPresent"),
        // As on a platform that chooses users at random, OpenShift for one.
        provider("any-user", "imagePullPolicy: IfNotPresent, runAsUser: 1000650000"),
    );
    fs::write(dir.join("providers.yaml"), config).expect("it can be written");
    fs::copy(cluster.guests.join("kubernetes.wasm"), dir.join("kubernetes.wasm"))
        .expect("the component is built");
    let kubeconfig = dir.join("kubeconfig");
    fs::write(&kubeconfig, operator_kubeconfig(cluster)).expect("it can be written");
    fs::set_permissions(&kubeconfig, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// The cluster as the operator's ServiceAccount sees it, not as the administrator does.
fn operator_kubeconfig(cluster: &Settings) -> String {
    let text = cluster.kubectl(&["config", "view", "--minify", "--raw", "--flatten", "-o", "json"]);
    let mut config: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
    let token =
        cluster.kubectl(&["-n", SYSTEM, "create", "token", "egress-proxies-operator", "--duration=2h"]);
    for user in config["users"].as_array_mut().expect("users") {
        user["user"] = serde_json::json!({ "token": token.trim() });
    }
    config.to_string()
}

fn free_addresses<const N: usize>() -> [String; N] {
    let held: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    std::array::from_fn(|at| held[at].local_addr().expect("it is bound").to_string())
}
