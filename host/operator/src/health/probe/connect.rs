//! CONNECT: opens a tunnel through the proxy, or says why there is none.
//!
//! Written by hand over `httparse`, because what the usual clients hide is just what a probe must see: the
//! status that the proxy gave, whatever its body says. Any 2xx opens the tunnel (RFC 9110, 9.3.6); bytes
//! after the head already belong to the tunnel; nothing but a 2xx is ever taken for the target's answer.

use std::io::Cursor;

use bytes::{Bytes, BytesMut};
use egress_proxies_core::facts::Auth;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::basic;
use super::exchange::USER_AGENT;
use super::failure::{Failure, Speaker};
use super::url::ProbeUrl;

/// Longest head of an answer to CONNECT, in bytes, heads of interim (1xx) answers before it included.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 100;

/// A tunnel: the stream after a good answer to CONNECT.
pub(super) trait Tunnel: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Tunnel for T {}

/// Asks the proxy for a tunnel to the host of the URL.
pub(super) async fn open(
    mut stream: TcpStream,
    url: &ProbeUrl,
    auth: &Auth,
) -> Result<impl Tunnel + use<>, Failure> {
    stream.write_all(&request(url, auth)).await.map_err(|_| Failure::broken())?;
    let mut received = BytesMut::with_capacity(1024);
    let mut interim = 0;
    let (status, head) = loop {
        let left = MAX_HEAD.saturating_sub(received.len()).saturating_sub(interim);
        if left == 0 {
            return Err(Failure::protocol(
                Speaker::Proxy,
                "its answer to CONNECT has more than 16 KiB of headers",
            ));
        }
        let mut limited = (&mut stream).take(u64::try_from(left).unwrap_or(0));
        let count = limited.read_buf(&mut received).await;
        if count.map_err(|_| Failure::broken())? == 0 {
            return Err(Failure::protocol(
                Speaker::Proxy,
                "it closed the connection before it answered CONNECT",
            ));
        }
        if let Some(found) = final_head(&mut received, &mut interim)? {
            break found;
        }
    };
    if !(200..300).contains(&status) {
        return Err(Failure::connect_status(status, auth));
    }
    let early = received.split_off(head).freeze();
    Ok(with_early_bytes(stream, early))
}

/// Status and length of the head that is not 1xx; none while it is incomplete. 1xx heads are cut off, and their
/// bytes counted.
fn final_head(received: &mut BytesMut, interim: &mut usize) -> Result<Option<(u16, usize)>, Failure> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(received).map_err(|_| {
            Failure::protocol(
                Speaker::Proxy,
                "what answered CONNECT is not HTTP/1: is this the port of an HTTP proxy?",
            )
        })?;
        let (httparse::Status::Complete(head), Some(status)) = (parsed, response.code) else {
            return Ok(None);
        };
        if !(100..200).contains(&status) {
            return Ok(Some((status, head)));
        }
        let rest = received.split_off(head);
        *received = rest;
        *interim = interim.saturating_add(head);
        if received.is_empty() {
            return Ok(None);
        }
    }
}

fn request(url: &ProbeUrl, auth: &Auth) -> Vec<u8> {
    let authority = url.connect_authority();
    let mut request =
        format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {USER_AGENT}\r\n")
            .into_bytes();
    if let Some(value) = basic::header(auth) {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

fn with_early_bytes(stream: TcpStream, early: Bytes) -> impl Tunnel {
    let (read, write) = stream.into_split();
    tokio::io::join(Cursor::new(early).chain(read), write)
}
