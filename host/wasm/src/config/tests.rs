//! Bad configs, each with the words that its reader needs.

use egress_proxies_core::provider::MaxUnavailable;

use super::*;

const HEAD: &str = "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n";

fn parse(text: &str) -> Result<ProvidersConfig, FileError> {
    ProvidersConfig::parse(text, Path::new("/etc/epo/providers.yaml"))
}

/// The entry `p` with these lines.
#[expect(clippy::unwrap_in_result, reason = "the file itself is good in these tests")]
fn entry(lines: &str) -> Result<ProviderConfig, EntryFault> {
    let lines = lines.lines().collect::<Vec<_>>().join("\n    ");
    let config = parse(&format!("{HEAD}  p:\n    source: {{ file: p.wasm }}\n    {lines}\n")).unwrap();
    config.entries.into_values().next().unwrap()
}

#[test]
fn a_full_entry_is_read() {
    let config = entry(
        "config: { image: docker.io/ubuntu/squid:latest, home: \"${HOME}\" }\n\
         kubernetes: { namespace: egress-proxies, serviceAccount: provider, resources: [pods, secrets] }\n\
         healthCheck: { url: http://probe.svc/ }\n\
         attributes: { geo: local }\n\
         replacement: { maxUnavailable: 3, drainSeconds: 60 }\n\
         addressCidrs: [10.0.0.0/8]\n\
         egress:\n\
         - { origin: \"https://api.example.com\", methods: [GET, POST], pathPrefix: /v1/ }\n\
         limits: { memoryMiB: 64, cpuMs: 1000, concurrency: 2 }\n\
         mode: deleteOnly",
    )
    .unwrap();
    assert_eq!(config.source, Source::File { path: "/etc/epo/p.wasm".into(), sha256: None });
    assert_eq!(config.config.get("home").unwrap(), "${HOME}", "nothing is expanded");
    assert_eq!(config.kubernetes.unwrap().resources, [KubernetesResource::Pods, KubernetesResource::Secrets]);
    assert_eq!(config.settings.replacement.max_unavailable, MaxUnavailable::Count(3));
    assert_eq!(config.limits, Limits { memory_mib: 64, cpu_ms: 1000, concurrency: 2 });
    assert!(config.settings.delete_only);
    assert_eq!(config.settings.probe_url.as_deref(), Some("http://probe.svc/"));
    assert_eq!(config.egress.first().unwrap().origin.to_string(), "https://api.example.com");
}

#[test]
fn an_absolute_path_stays_as_it_is() {
    let config = parse(&format!("{HEAD}  p: {{ source: {{ file: /opt/p.wasm }} }}\n")).unwrap();
    let entry = config.entries.into_values().next().unwrap().unwrap();
    assert_eq!(entry.source, Source::File { path: "/opt/p.wasm".into(), sha256: None });
}

#[test]
fn an_unknown_field_is_shown_with_its_line_and_column() {
    for (lines, line, column, word) in [
        ("  p:\n    source: { file: p.wasm }\n    memory: 3\n", 6, 5, "memory"),
        (
            "  p:\n    source: { file: p.wasm }\n    limits:\n      memoryMiB: 64\n      cpus: 3\n",
            8,
            7,
            "cpus",
        ),
        ("  p:\n    source: { fil: p.wasm }\n", 5, 15, "fil"),
        ("extra: 1\n", 4, 1, "extra"),
    ] {
        let head = if lines.starts_with("extra") {
            HEAD.replace("providers:\n", "providers: {}\n")
        } else {
            HEAD.into()
        };
        let error = parse(&format!("{head}{lines}")).unwrap_err();
        let text = error.to_string();
        let FileError::Parse { line: l, column: c, message, .. } = error else { panic!("{text}") };
        assert_eq!((l, c), (line, column), "{text}");
        assert!(message.contains(&format!("`{word}`")), "{text}");
        assert!(text.starts_with(&format!("/etc/epo/providers.yaml:{line}:{column}: ")), "{text}");
        assert!(!text.contains('\n'), "one line: {text}");
    }
}

#[test]
fn what_is_no_providers_config_is_refused_as_a_whole() {
    for (text, word) in [
        ("apiVersion: v1\nkind: ProvidersConfig\nproviders: {}\n", "crawl.example.com/v1alpha1"),
        ("apiVersion: crawl.example.com/v1alpha1\nkind: Config\nproviders: {}\n", "ProvidersConfig"),
        ("apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\n", "providers"),
        (&format!("{HEAD}  Bad_Name: {{ source: {{ file: p.wasm }} }}\n"), "[a-z][a-z0-9-]{0,62}"),
        (&format!("{HEAD}  p: {{ source: {{ file: a }} }}\n  p: {{ source: {{ file: b }} }}\n"), "duplicate"),
        (&format!("{HEAD}  p: {{ source: {{ file: [a] }} }}\n"), "string"),
        (&format!("{HEAD}  p: {{ }}\n"), "source"),
        ("\t: [", ""),
    ] {
        let error = parse(text).unwrap_err();
        assert!(matches!(error, FileError::Parse { .. }), "{error}");
        assert!(error.to_string().to_lowercase().contains(&word.to_lowercase()), "{text}: {error}");
    }
}

#[test]
fn a_share_that_is_none_is_said_by_its_name() {
    for value in ["20.5", "[1]", "{ a: 1 }", "true"] {
        let text = format!(
            "{HEAD}  p:\n    source: {{ file: p.wasm }}\n    replacement: {{ maxUnavailable: {value} }}\n"
        );
        let error = parse(&text).unwrap_err();
        let FileError::Parse { line, ref message, .. } = error else { panic!("{error}") };
        assert_eq!(line, 6, "{error}");
        assert!(message.contains("replacement.maxUnavailable as a share like 20%"), "{error}");
    }
}

#[test]
fn a_missing_file_says_which() {
    let error = ProvidersConfig::load(Path::new("/nonexistent/providers.yaml")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/providers.yaml"), "{error}");
}

#[test]
fn a_bad_value_fails_its_provider_only_and_names_field_value_and_bound() {
    let rows: &[(&str, &[&str])] = &[
        ("limits: { memoryMiB: 8 }", &["limits.memoryMiB is 8", "16 to 512"]),
        ("limits: { cpuMs: -1 }", &["limits.cpuMs is -1", "100 to 60000"]),
        ("limits: { concurrency: 65 }", &["limits.concurrency is 65", "1 to 64"]),
        ("mode: readOnly", &["mode", "readOnly", "deleteOnly"]),
        ("addressCidrs: [10.0.0.1/33]", &["addressCidrs", "10.0.0.1/33"]),
        ("addressCidrs: [0.0.0.0/0]", &["addressCidrs", "metadata"]),
        (
            "kubernetes: { namespace: A_b, serviceAccount: s, resources: [pods] }",
            &["kubernetes.namespace", "A_b"],
        ),
        ("kubernetes: { namespace: a, serviceAccount: s, resources: [nodes] }", &["nodes", "pods, secrets"]),
        (
            "kubernetes: { namespace: a, serviceAccount: s, resources: [services] }",
            &["services", "knows pods, secrets"],
        ),
        ("kubernetes: { namespace: a, serviceAccount: s, resources: [] }", &["resources is empty"]),
        ("healthCheck: { url: ftp://x/ }", &["healthCheck.url", "http://"]),
        ("healthCheck: { url: http://user:pw@x/ }", &["without user"]),
        ("attributes: { \"\": a }", &["attributes: a key is empty"]),
        ("attributes: { geo: \"a\\nb\" }", &["geo", "control character"]),
        ("attributes: { \"a\\u0007b\": c }", &["control character"]),
        ("replacement: { maxUnavailable: 0% }", &["maxUnavailable is 0", "1 to 100"]),
        ("replacement: { maxUnavailable: some }", &["maxUnavailable", "20%"]),
        ("replacement: { drainSeconds: 90000 }", &["drainSeconds is 90000"]),
        ("egress: [{ origin: \"https://a.example/x\", methods: [GET] }]", &["egress[0].origin", "path"]),
        ("egress: [{ origin: \"https://u@a.example\", methods: [GET] }]", &["egress[0].origin", "user"]),
        ("egress: [{ origin: \"https://a.example\", methods: [] }]", &["egress[0].methods is empty"]),
        ("egress: [{ origin: \"https://a.example\", methods: [get] }]", &["\"get\"", "GET"]),
        ("egress: [{ origin: \"https://a.example\", methods: [TRACE] }]", &["TRACE"]),
        (
            "egress: [{ origin: \"https://a.example\", methods: [GET], pathPrefix: /a/../b }]",
            &["pathPrefix", "dot"],
        ),
        (
            "egress: [{ origin: \"https://a.example\", methods: [GET], auth: google }]",
            &["google", "not supported yet"],
        ),
        ("egress: [{ origin: \"https://a.example\", methods: [GET], auth: magic }]", &["magic", "not known"]),
        ("egress: [{ origin: \"https://kubernetes.internal\", methods: [GET] }]", &["the field kubernetes"]),
        (
            "egress: [{ origin: \"https://a.example\", methods: [GET], caSecretRef: { name: ca } }]",
            &["caSecretRef"],
        ),
    ];
    for (lines, words) in rows {
        let fault = entry(lines).unwrap_err().to_string();
        for word in *words {
            assert!(fault.contains(word), "{lines}: {fault}");
        }
    }
    let two = parse(&format!(
        "{HEAD}  bad:\n    source: {{ file: b.wasm }}\n    limits: {{ memoryMiB: 1 }}\n  good:\n    source: {{ file: g.wasm }}\n"
    ))
    .unwrap();
    assert_eq!(two.entries.values().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_source_is_exactly_one_kind() {
    let hex = "a".repeat(64);
    for (source, word) in [
        ("{ }".to_owned(), "exactly one"),
        ("{ file: a, oci: b }".to_owned(), "exactly one"),
        ("{ https: \"https://a/b\" }".to_owned(), "sha256"),
        (format!("{{ https: \"http://a/b\", sha256: {hex} }}"), "https://"),
        ("{ oci: registry.example.com/x:latest }".to_owned(), "@sha256:"),
        ("{ file: a, sha256: abc }".to_owned(), "64 lower-case hex"),
    ] {
        let config = parse(&format!("{HEAD}  p: {{ source: {source} }}\n")).unwrap();
        let fault = config.entries.into_values().next().unwrap().unwrap_err().to_string();
        assert!(fault.contains(word), "{source}: {fault}");
    }
}
