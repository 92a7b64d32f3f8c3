//! Requests to other hosts, without credentials: a fresh connection each, to an address that was checked.
//!
//! The name is resolved once, here, and the connection goes to the address that was judged: a second
//! look-up could give another answer. TLS is checked against the name. Redirects are the guest's business
//! and come through the gate again; proxy settings of the environment are not read.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use wasmtime_wasi_http::Error;

use super::budget::Budget;
use super::fence::Leave;
use super::{GateError, MOST_RESPONSE_BYTES, address, headers};
use crate::config::{EgressRule, Origin};

/// The TLS side, made once per process.
#[derive(Clone)]
pub(crate) struct PlainClient {
    tls: TlsConnector,
}

impl std::fmt::Debug for PlainClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainClient").finish_non_exhaustive()
    }
}

/// A request that is granted.
pub(super) struct Outgoing {
    pub(super) parts: http::request::Parts,
    pub(super) body: Bytes,
}

/// Bounds in time; all end at the deadline of the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) deadline: Instant,
    pub(super) connect: Duration,
    pub(super) first_byte: Duration,
    pub(super) between_bytes: Duration,
}

/// Bounds of one request within its call.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    pub(super) times: Times,
    pub(super) held: &'a Budget,
    pub(super) leave: &'a Leave,
}

impl Times {
    /// The end of a step that may take this long.
    fn until(&self, step: Duration) -> Instant {
        Instant::now().checked_add(step).map_or(self.deadline, |end| end.min(self.deadline))
    }
}

impl PlainClient {
    /// With the public certificate authorities.
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }
}

/// Sends one request and collects the answer.
pub(super) async fn send(
    client: &PlainClient,
    rule: &EgressRule,
    origin: &Origin,
    outgoing: Outgoing,
    limits: Limits<'_>,
) -> Result<http::Response<Bytes>, GateError> {
    let times = limits.times;
    let connected = times.until(times.connect);
    let addresses = resolve(origin, rule, connected).await?;
    let stream = timeout_at(connected, connect(&addresses)).await.map_err(|_| Error::ConnectionTimeout)??;
    if !origin.https {
        return Ok(exchange(stream, origin, outgoing, limits).await?);
    }
    let name = ServerName::try_from(origin.host.clone()).map_err(|_| Error::DestinationNotFound)?;
    let stream = timeout_at(connected, client.tls.connect(name, stream))
        .await
        .map_err(|_| Error::ConnectionTimeout)?
        .map_err(Error::Tls)?;
    Ok(exchange(stream, origin, outgoing, limits).await?)
}

/// The addresses that may be connected to.
async fn resolve(origin: &Origin, rule: &EgressRule, until: Instant) -> Result<Vec<SocketAddr>, GateError> {
    let found: Vec<SocketAddr> = match origin.host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, origin.port)],
        Err(_) => timeout_at(until, tokio::net::lookup_host((origin.host.as_str(), origin.port)))
            .await
            .map_err(|_| Error::DnsTimeout)?
            .map_err(|error| Error::DnsError { rcode: Some(error.to_string()), info_code: None })?
            .collect(),
    };
    let allowed: Vec<SocketAddr> =
        found.iter().copied().filter(|found| address::allowed(found.ip(), &rule.allow_cidrs)).collect();
    match (allowed.is_empty(), found.first()) {
        (false, _) => Ok(allowed),
        (true, None) => Err(Error::DestinationNotFound.into()),
        (true, Some(first)) => Err(GateError::Denied(prohibited(origin, first.ip()))),
    }
}

fn prohibited(origin: &Origin, ip: IpAddr) -> String {
    match address::kind(ip) {
        address::AddressKind::Private => {
            let bits = if ip.is_ipv4() { 32 } else { 128 };
            format!(
                "{origin} is at {ip}, which is not public; add to its egress rule: allowCidrs: [{ip}/{bits}]"
            )
        }
        address::AddressKind::Public | address::AddressKind::Never => {
            format!("{origin} is at {ip}, a link-local, metadata or reserved address, which is never allowed")
        }
    }
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut last = Error::DestinationNotFound;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                last = Error::ConnectionRefused;
            }
            Err(error) => last = Error::Connect(error),
        }
    }
    Err(last)
}

async fn exchange<S>(
    stream: S,
    origin: &Origin,
    outgoing: Outgoing,
    limits: Limits<'_>,
) -> Result<http::Response<Bytes>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let times = limits.times;
    let request = on_the_wire(origin, outgoing)?;
    let first = times.until(times.first_byte);
    let (mut sender, connection) =
        timeout_at(first, hyper::client::conn::http1::handshake(TokioIo::new(stream)))
            .await
            .map_err(|_| Error::ConnectionTimeout)??;
    // Dropped with this call: the connection ends with it.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    // Finding the name, connecting and TLS took their time.
    limits.leave.check()?;
    let response =
        timeout_at(first, sender.send_request(request)).await.map_err(|_| Error::HttpResponseTimeout)??;
    let (parts, body) = response.into_parts();
    Ok(http::Response::from_parts(parts, collect(body, limits).await?))
}

/// Path only, and a Host header that says what was checked.
fn on_the_wire(origin: &Origin, outgoing: Outgoing) -> Result<http::Request<Full<Bytes>>, Error> {
    let Outgoing { parts, body } = outgoing;
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let mut request = http::Request::builder()
        .method(parts.method)
        .uri(path)
        .body(Full::new(body))
        .map_err(|_| Error::HttpRequestUriInvalid)?;
    *request.headers_mut() = headers::for_plain(&parts.headers);
    let authority = origin.to_string();
    let host = authority.split("://").nth(1).unwrap_or_default();
    let host = http::HeaderValue::from_str(host).map_err(|_| Error::HttpRequestUriInvalid)?;
    request.headers_mut().insert(http::header::HOST, host);
    Ok(request)
}

/// The body, bounded in size as it arrives.
async fn collect(mut body: Incoming, limits: Limits<'_>) -> Result<Bytes, Error> {
    let times = limits.times;
    let too_large = || Error::HttpResponseBodySize(u64::try_from(MOST_RESPONSE_BYTES).ok());
    let (mut bytes, mut share) = (Vec::new(), limits.held.take(0).ok_or_else(too_large)?);
    loop {
        let frame = timeout_at(times.until(times.between_bytes), body.frame())
            .await
            .map_err(|_| Error::ConnectionReadTimeout)?;
        let Some(frame) = frame else {
            bytes.shrink_to_fit();
            return Ok(share.keep(bytes.into()));
        };
        if let Ok(data) = frame.map_err(|_| Error::HttpResponseIncomplete)?.into_data() {
            if bytes.len().saturating_add(data.len()) > MOST_RESPONSE_BYTES {
                return Err(too_large());
            }
            share.add(limits.held.take(data.len()).ok_or_else(too_large)?);
            bytes.extend_from_slice(&data);
        }
    }
}
