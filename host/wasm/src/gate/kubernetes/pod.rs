//! Pods that a provider may make: those that have no power beyond their own containers.
//!
//! An allow-list where it matters (volumes) and a deny-list where the API may grow harmlessly. The
//! namespace's Pod Security admission may be stricter; this holds without it.

use serde_json::{Map, Value};

/// Those that Kubernetes calls safe: they count for the pod's own network alone.
const SAFE_SYSCTLS: [&str; 5] = [
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.ping_group_range",
];

type Check = Result<(), String>;

pub(super) fn check(pod: &Value, machine: &str) -> Check {
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if name != machine {
        let name: String = name.chars().take(80).collect();
        return Err(format!(
            "a Pod may only have the name of the machine being made, {machine}, not {name:?}"
        ));
    }
    of_metadata(pod)?;
    let Some(spec) = pod.get("spec").and_then(Value::as_object) else {
        return Err("the Pod has no spec".to_owned());
    };
    of_spec(spec)?;
    for volume in list(spec, "volumes") {
        of_volume(volume, name)?;
    }
    for (field, container) in ["initContainers", "containers"]
        .into_iter()
        .flat_map(|field| list(spec, field).iter().map(move |container| (field, container)))
    {
        of_container(container, name).map_err(|why| format!("spec.{field}: {why}"))?;
    }
    Ok(())
}

/// The older way to say what `securityContext` says now.
fn of_metadata(pod: &Value) -> Check {
    let annotations = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    let confines = |key: &str| {
        key.starts_with("container.apparmor.security.beta.kubernetes.io/")
            || key.starts_with("container.seccomp.security.alpha.kubernetes.io/")
            || key == "seccomp.security.alpha.kubernetes.io/pod"
    };
    match annotations.into_iter().flatten().find(|(key, _)| confines(key)) {
        None => Ok(()),
        Some((key, _)) => {
            let key: String = key.chars().take(80).collect();
            Err(format!("metadata.annotations: {key} is not allowed; use securityContext"))
        }
    }
}

fn list<'a>(object: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn truthy(value: Option<&Value>) -> bool {
    !matches!(value, None | Some(Value::Null | Value::Bool(false)))
}

/// Present with any content.
fn filled(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => true,
    }
}

fn of_spec(spec: &Map<String, Value>) -> Check {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if truthy(spec.get(field)) {
            return Err(format!("spec.{field} is not allowed"));
        }
    }
    for field in ["ephemeralContainers", "nodeName", "resourceClaims", "runtimeClassName", "overhead"] {
        if filled(spec.get(field)) {
            return Err(format!("spec.{field} is not allowed"));
        }
    }
    if spec.get("automountServiceAccountToken") != Some(&Value::Bool(false)) {
        return Err("spec.automountServiceAccountToken must be false".to_owned());
    }
    for field in ["serviceAccountName", "serviceAccount"] {
        if !matches!(spec.get(field).and_then(Value::as_str), None | Some("" | "default")) {
            return Err(format!("spec.{field} must be default or absent"));
        }
    }
    if spec.get("priorityClassName").and_then(Value::as_str).is_some_and(|name| name.starts_with("system-")) {
        return Err("spec.priorityClassName must not be a system class".to_owned());
    }
    let security = spec.get("securityContext").and_then(Value::as_object);
    for sysctl in
        security.and_then(|security| security.get("sysctls")).and_then(Value::as_array).into_iter().flatten()
    {
        let name = sysctl.get("name").and_then(Value::as_str).unwrap_or_default();
        if !SAFE_SYSCTLS.contains(&name) {
            return Err(format!(
                "spec.securityContext.sysctls: {name:?} is not one that reaches its own pod alone"
            ));
        }
    }
    security.map_or(Ok(()), |security| confinement(security).map_err(|why| format!("spec.{why}")))
}

/// Fields that a pod's and a container's security context share.
fn confinement(security: &Map<String, Value>) -> Check {
    for field in ["seccompProfile", "appArmorProfile"] {
        let kind = security.get(field).and_then(|profile| profile.get("type")).and_then(Value::as_str);
        if kind == Some("Unconfined") {
            return Err(format!("securityContext.{field} must not be Unconfined"));
        }
    }
    for field in ["seLinuxOptions", "windowsOptions"] {
        if filled(security.get(field)) {
            return Err(format!("securityContext.{field} is not allowed"));
        }
    }
    Ok(())
}

fn of_volume(volume: &Value, machine: &str) -> Check {
    let Some(fields) = volume.as_object() else {
        return Err("spec.volumes has an entry that is no object".to_owned());
    };
    for (kind, source) in fields.iter().filter(|(field, _)| field.as_str() != "name") {
        match kind.as_str() {
            "emptyDir" | "configMap" | "downwardAPI" => {}
            "secret" => own_secret(source.get("secretName"), machine, "spec.volumes")?,
            "projected" => {
                for part in source.get("sources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) {
                    of_projection(part, machine)?;
                }
            }
            other => {
                return Err(format!(
                    "spec.volumes: {other} is not allowed; emptyDir, configMap, downwardAPI and the Secret of the machine are"
                ));
            }
        }
    }
    Ok(())
}

fn of_projection(part: &Value, machine: &str) -> Check {
    for (kind, source) in part.as_object().into_iter().flatten() {
        match kind.as_str() {
            "configMap" | "downwardAPI" => {}
            "secret" => own_secret(source.get("name"), machine, "spec.volumes.projected")?,
            other => return Err(format!("spec.volumes.projected: {other} is not allowed")),
        }
    }
    Ok(())
}

/// Other Secrets of the namespace are none of a provider's business, and a pod could read them to it.
fn own_secret(name: Option<&Value>, machine: &str, place: &str) -> Check {
    match name.and_then(Value::as_str) {
        Some(name) if name == machine && !machine.is_empty() => Ok(()),
        other => Err(format!(
            "{place}: Secret {:?} is not that of the machine, {machine}",
            other.unwrap_or_default()
        )),
    }
}

fn of_container(container: &Value, machine: &str) -> Check {
    let Some(fields) = container.as_object() else { return Err("an entry is no object".to_owned()) };
    if filled(fields.get("volumeDevices")) {
        return Err("volumeDevices is not allowed".to_owned());
    }
    for port in list(fields, "ports") {
        if !matches!(port.get("hostPort"), None | Some(Value::Null))
            && port.get("hostPort") != Some(&Value::from(0))
        {
            return Err("hostPort is not allowed".to_owned());
        }
        if filled(port.get("hostIP")) {
            return Err("hostIP is not allowed".to_owned());
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        of_handler(fields.get(probe)).map_err(|why| format!("{probe}.{why}"))?;
    }
    for hook in ["postStart", "preStop"] {
        let handler = fields.get("lifecycle").and_then(|lifecycle| lifecycle.get(hook));
        of_handler(handler).map_err(|why| format!("lifecycle.{hook}.{why}"))?;
    }
    for variable in list(fields, "env") {
        if let Some(reference) = variable.pointer("/valueFrom/secretKeyRef") {
            own_secret(reference.get("name"), machine, "env")?;
        }
    }
    for source in list(fields, "envFrom") {
        if let Some(reference) = source.get("secretRef") {
            own_secret(reference.get("name"), machine, "envFrom")?;
        }
    }
    fields.get("securityContext").and_then(Value::as_object).map_or(Ok(()), of_security)
}

/// The kubelet makes these requests from the node's own network: with a host of their own they would reach
/// what the pod cannot.
fn of_handler(handler: Option<&Value>) -> Check {
    for kind in ["httpGet", "tcpSocket"] {
        if filled(handler.and_then(|handler| handler.get(kind)).and_then(|action| action.get("host"))) {
            return Err(format!("{kind}.host is not allowed; the pod itself is asked without it"));
        }
    }
    Ok(())
}

fn of_security(security: &Map<String, Value>) -> Check {
    for field in ["privileged", "allowPrivilegeEscalation"] {
        if truthy(security.get(field)) {
            return Err(format!("securityContext.{field} is not allowed"));
        }
    }
    if !matches!(security.get("procMount").and_then(Value::as_str), None | Some("Default")) {
        return Err("securityContext.procMount must be Default".to_owned());
    }
    let added = security.get("capabilities").and_then(|all| all.get("add")).and_then(Value::as_array);
    if let Some(name) = added.into_iter().flatten().find(|name| name.as_str() != Some("NET_BIND_SERVICE")) {
        return Err(format!("securityContext.capabilities.add {name} is not allowed"));
    }
    confinement(security)
}
