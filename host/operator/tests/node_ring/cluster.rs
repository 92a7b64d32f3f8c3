//! kubectl and curl, as a user types them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for anything; a wait ends as soon as its condition holds.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Where the cluster is and what the tests run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) bin: PathBuf,
    pub(crate) guests: PathBuf,
}

/// The settings that `make test` gives, or a line that says what is left out.
#[expect(clippy::disallowed_methods, reason = "a test binary has no Config; these three name its ring")]
pub(crate) fn settings() -> Option<Settings> {
    let path = |name: &str| std::env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let found = path("EPO_KUBECONFIG").zip(path("EPO_NODE_BIN")).zip(path("EPO_GUESTS_DIR"));
    let Some(((kubeconfig, bin), guests)) = found else {
        // Not with `eprintln!`: what that says is shown only of tests that fail.
        writeln!(
            std::io::stderr(),
            "SKIPPED: no real node, so that the tests of this ring pass without having run. Run `make test`, or set EPO_KUBECONFIG, EPO_NODE_BIN and EPO_GUESTS_DIR."
        )
        .expect("standard error takes a line");
        return None;
    };
    Some(Settings { kubeconfig, bin, guests })
}

impl Settings {
    /// Runs kubectl; fails the test with what it said if it fails.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("kubectl starts");
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs kubectl, whatever comes of it.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).output().expect("kubectl starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// `kubectl apply -f -`.
    pub(crate) fn apply(&self, manifest: &str) {
        let mut child = self
            .command(&["apply", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        child.stdin.take().expect("its input").write_all(manifest.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("kubectl ends");
        assert!(output.status.success(), "apply: {}\n{manifest}", String::from_utf8_lossy(&output.stderr));
    }

    /// One object as JSON; `None` if there is none.
    pub(crate) fn get(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        let text = self.kubectl(&["-n", namespace, "get", kind, name, "-o", "json", "--ignore-not-found"]);
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text).expect("kubectl prints JSON"))
    }

    /// Where the API server is: `https://HOST:PORT`.
    pub(crate) fn api_server(&self) -> String {
        self.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"])
    }

    /// kubectl, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join("kubectl"));
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).stdin(Stdio::null());
        command
    }
}

/// Waits until `probe` gives a value; fails with `what` and the last thing seen.
#[expect(clippy::disallowed_methods, reason = "a test waits for real processes in real time")]
pub(crate) fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(seen) if Instant::now() > deadline => {
                panic!("not in {PATIENCE:?}: {what}; last seen: {seen}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// A condition's status, reason and message.
pub(crate) fn condition<'a>(proxy: &'a Value, kind: &str) -> (&'a str, &'a str, &'a str) {
    let text = |condition: &'a Value, field: &str| condition[field].as_str().unwrap_or("");
    proxy["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .map_or(("", "", ""), |found| (text(found, "status"), text(found, "reason"), text(found, "message")))
}

/// What curl came back with.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Runs curl; status 0 if it got no answer, with its own words as the body.
pub(crate) fn curl(arguments: &[&str]) -> Answer {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--noproxy", "", "-w", "\n%{http_code}"])
        .args(arguments)
        .output()
        .expect("curl starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    let said = String::from_utf8_lossy(&output.stderr);
    Answer { status: status.parse().unwrap_or(0), body: format!("{body}{said}") }
}
