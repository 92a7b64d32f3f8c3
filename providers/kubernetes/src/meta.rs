//! The calls that need no network: what this provider is, and whether a request can work.

use egress_proxies_provider_sdk::failure::invalid;
use egress_proxies_provider_sdk::kubernetes::ORIGIN;
use egress_proxies_provider_sdk::model::{
    ConfigReport, CreatePlan, CreateRequest, Description, EgressNeed, Failure,
};
use egress_proxies_provider_sdk::{Context, Method};

use crate::api;
use crate::directives;
use crate::settings::{Config, Settings};
use crate::users;

/// With room to spare below the 1 MiB of a Secret.
const BOOTSTRAP_MAX_BYTES: u32 = 128 << 10;

pub(crate) fn describe() -> Description {
    let schema = |text: &str| Some(text.to_owned());
    Description {
        name: "kubernetes".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        summary: "One Squid pod per Proxy, in one namespace of the operator's own cluster".to_owned(),
        config_schema: schema(include_str!("../schemas/config.json")),
        placement_schema: schema(include_str!("../schemas/placement.json")),
        parameters_schema: schema(include_str!("../schemas/parameters.json")),
        bootstrap_max_bytes: BOOTSTRAP_MAX_BYTES,
        list_lag_ms: 0,
        capabilities: vec!["access".to_owned()],
        extra: Vec::new(),
    }
}

/// The namespace that was granted.
pub(crate) fn namespace(context: &Context) -> Result<&str, Failure> {
    context.kubernetes_namespace().ok_or_else(|| {
        invalid(
            "",
            "no namespace was granted; add kubernetes: {namespace: ..., serviceAccount: ...} to this provider in the providers config",
        )
    })
}

pub(crate) fn validate_config(context: &Context) -> Result<ConfigReport, Failure> {
    let namespace = namespace(context)?;
    let settings = Settings::of_config(context.config()?)?;
    Ok(ConfigReport {
        scope: format!("namespaces/{namespace}"),
        egress: vec![EgressNeed {
            origin: ORIGIN.to_owned(),
            methods: [Method::Get, Method::Post, Method::Patch, Method::Delete]
                .map(|m| m.as_str().to_owned())
                .to_vec(),
            path_prefix: api::path_prefix(namespace),
            auth: "kubernetes".to_owned(),
            why: "get, list, create, patch and delete pods; create secrets".to_owned(),
            extra: Vec::new(),
        }],
        warnings: open_to_all(&settings).into_iter().collect(),
        extra: Vec::new(),
    })
}

pub(crate) fn validate_create(context: &Context, request: &CreateRequest) -> Result<CreatePlan, Failure> {
    let namespace = namespace(context)?;
    let settings = settings(context, request)?;
    if request.port == 0 {
        return Err(invalid("/port", "/port: ports are 1 to 65535"));
    }
    if let Some(bootstrap) = &request.bootstrap {
        check_bootstrap(bootstrap)?;
        directives::check(bootstrap, &settings.config.extra_directives)?;
    }
    if let Some(credentials) = &request.access {
        users::check(credentials)?;
    }
    let warnings = if request.access.is_none() { open_to_all(&settings) } else { None };
    Ok(CreatePlan {
        id: Some(format!("{namespace}/{}", request.name)),
        location: None,
        warnings: warnings.into_iter().collect(),
        extra: Vec::new(),
    })
}

/// What the machine of this request is to be like.
pub(crate) fn settings(context: &Context, request: &CreateRequest) -> Result<Settings, Failure> {
    let config: Config = context.config()?;
    Settings::of_machine(config, &request.placement, &request.parameters)
}

fn check_bootstrap(bootstrap: &str) -> Result<(), Failure> {
    let limit = usize::try_from(BOOTSTRAP_MAX_BYTES).unwrap_or(usize::MAX);
    if bootstrap.len() > limit {
        let message = format!("cloudInit has {} bytes; this provider takes up to {limit}", bootstrap.len());
        return Err(invalid("/bootstrap", message));
    }
    if bootstrap.contains('\0') {
        return Err(invalid(
            "/bootstrap",
            "cloudInit is Squid configuration at this provider; it cannot hold NUL",
        ));
    }
    if bootstrap.starts_with("#cloud-config") || bootstrap.starts_with("#!") {
        let message = "cloudInit is Squid configuration at this provider (directives for squid.conf), not a cloud-init document or script";
        return Err(invalid("/bootstrap", message));
    }
    Ok(())
}

fn open_to_all(settings: &Settings) -> Option<String> {
    settings.allowed_clients.iter().any(|network| network.prefix_len() == 0).then(|| {
        "allowedClients lets in everybody: whoever reaches the pod uses the proxy, unless it demands credentials"
            .to_owned()
    })
}
