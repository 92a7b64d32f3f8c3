//! Bearer tokens. `/healthz` and `/openapi.json` are open; everything else wants a token once one is
//! configured.
//!
//! A source of tokens that gives none locks the API and never opens it: a variable that is set but blank (a
//! Secret whose key is empty), a tokens file that is empty, or one that cannot be read at start. A file that
//! cannot be read later changes nothing. Only a configuration without any source means an open API, which is
//! said loudly at start.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use egress_proxies_core::provider::Secret;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::error::{ApiError, Code};
use super::response::CredentialPolicy;

/// Paths that need no token.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/openapi.json"];

/// Where tokens come from.
#[derive(Debug, Clone, Default)]
pub struct TokenSources {
    /// One token, from `DISCOVERY_TOKEN`; a blank one lets nobody in.
    pub token: Option<Secret<String>>,
    /// A file with one token per line; blank lines and lines that begin with `#` are skipped.
    pub file: Option<PathBuf>,
}

/// The tokens that are accepted now.
pub struct Tokens {
    sources: TokenSources,
    accepted: ArcSwap<Vec<TokenHash>>,
    unreadable: AtomicBool,
}

/// Tokens are kept and compared as hashes: of one length, so that a comparison tells nothing about it.
type TokenHash = [u8; 32];

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("sources", &self.sources).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads the sources and says what that means. Never fails: a file that cannot be read is read again.
    pub async fn load(sources: TokenSources) -> Arc<Self> {
        let tokens = Self { sources, accepted: ArcSwap::default(), unreadable: AtomicBool::new(false) };
        if !tokens.required() {
            warn!(
                "THE DISCOVERY API IS OPEN TO ANYBODY WHO CAN REACH IT: no token is configured. Leases carry \
                 no proxy credentials. Set DISCOVERY_TOKEN or a tokens file"
            );
        }
        if tokens.sources.token.is_some() && tokens.own_token().is_none() {
            error!(
                "DISCOVERY_TOKEN is set but blank and lets nobody in; set it to a token, or remove it \
                 altogether if the API is to be open or a tokens file is used"
            );
        }
        tokens.reload(true).await;
        Arc::new(tokens)
    }

    /// Clients must show a token.
    pub fn required(&self) -> bool {
        self.sources.file.is_some() || self.sources.token.is_some()
    }

    /// Credentials of proxies leave only to clients that showed a token.
    pub(super) fn credential_policy(&self) -> CredentialPolicy {
        if self.required() { CredentialPolicy::Give } else { CredentialPolicy::Withhold }
    }

    /// Reads the file again every `period` until cancelled. Secrets that are mounted as files change by
    /// an exchange of links, so the content is compared, not the time of the file.
    pub async fn watch(self: Arc<Self>, period: Duration, stop: CancellationToken) {
        if self.sources.file.is_none() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(period) => self.reload(false).await,
            }
        }
    }

    /// Exchanges the accepted tokens for those in the sources now. While the file cannot be read, those
    /// read before stay.
    async fn reload(&self, first: bool) {
        let mut accepted: Vec<TokenHash> = self.own_token().map(hash).into_iter().collect();
        if let Some(path) = &self.sources.file {
            match tokio::fs::read_to_string(path).await {
                Ok(text) => {
                    if self.unreadable.swap(false, Ordering::Relaxed) {
                        info!(path = %path.display(), "the tokens file can be read again");
                    }
                    accepted.extend(lines(&text).map(hash));
                }
                Err(fault) => {
                    self.cannot_read(path, &fault, first);
                    if first {
                        self.accepted.store(Arc::new(accepted));
                    }
                    return;
                }
            }
        }
        if self.required() && accepted.is_empty() && (first || !self.accepted.load().is_empty()) {
            error!("no token is configured, though a place for tokens is; every client is refused");
        }
        if **self.accepted.load() != accepted {
            info!(tokens = accepted.len(), "tokens of the discovery API read");
            self.accepted.store(Arc::new(accepted));
        }
    }

    /// Says so once each time the file becomes unreadable.
    fn cannot_read(&self, path: &Path, fault: &io::Error, first: bool) {
        if self.unreadable.swap(true, Ordering::Relaxed) {
            return;
        }
        let path = path.display();
        if first {
            error!(%path, %fault, "cannot read the tokens file; no token of it is accepted until it can be read");
        } else {
            warn!(
                %path, %fault,
                "cannot read the tokens file any more; the tokens read before stay in force. To revoke them, \
                 empty the file"
            );
        }
    }

    fn own_token(&self) -> Option<&str> {
        let token = self.sources.token.as_ref()?.expose().trim();
        (!token.is_empty()).then_some(token)
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if !self.required() {
            return Ok(());
        }
        let refuse = |message: &str| Err(ApiError::new(Code::Unauthorized, message));
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return refuse("send exactly one header `Authorization: Bearer <token>`");
        };
        let presented = value.to_str().ok().and_then(|text| text.split_once(' '));
        let Some((_, token)) = presented.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
            return refuse("the Authorization header is not of the form `Bearer <token>`");
        };
        let presented = hash(token.trim());
        // Every token is compared, so that the time does not tell which one came near.
        let known = self
            .accepted
            .load()
            .iter()
            .fold(Choice::from(0), |known, accepted| known | accepted.ct_eq(&presented));
        if known.into() { Ok(()) } else { refuse("the token is not one of those configured") }
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// Lets through who shows a token, and everybody to the open paths.
pub(super) async fn require_token(
    State(tokens): State<Arc<Tokens>>,
    request: Request,
    next: Next,
) -> Response {
    if !OPEN_PATHS.contains(&request.uri().path())
        && let Err(refusal) = tokens.check(request.headers())
    {
        return refusal.into_response();
    }
    next.run(request).await
}
