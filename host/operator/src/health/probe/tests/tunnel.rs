//! CONNECT: what opens a tunnel, what does not, and what is sent where.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use egress_proxies_core::facts::Auth;
use egress_proxies_core::health::{Outcome, ProbeReason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fakes::{FakeProxy, OK, OPENED, Probe, Target, linger, read_head};
use crate::health::probe::connect;
use crate::health::probe::url::ProbeUrl;

const URL: &str = "https://target.test/health?x=1";

fn target() -> Target {
    Target::named("target.test", OK)
}

#[tokio::test]
async fn any_2xx_opens_the_tunnel_also_after_interim_answers() {
    for reply in [
        OPENED,
        "HTTP/1.1 201 Created\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 204\r\n\r\n",
        "HTTP/1.1 299 Whatever\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let target = target();
        let proxy = FakeProxy::tunnel(reply, target.clone()).await;
        let outcome = Probe::of(proxy.address, URL).trusting(&target.ca_pem).run().await;
        assert!(matches!(outcome, Outcome::Passed { .. }), "{reply:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_answer_in_single_bytes_opens_the_tunnel() {
    let target = target();
    let ca = target.ca_pem.clone();
    let proxy = FakeProxy::serve(move |mut stream, heads| {
        let target = target.clone();
        async move {
            read_head(&mut stream).await?;
            for byte in OPENED.bytes() {
                stream.write_all(&[byte]).await?;
                stream.flush().await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            target.play(stream, heads).await
        }
    })
    .await;
    Probe::of(proxy.address, URL).trusting(&ca).expect_ok().await;
}

#[tokio::test]
async fn what_is_not_http_is_never_a_tunnel() {
    for reply in [
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "200 OK\r\n\r\n",
        "\u{5}\u{0}",
    ] {
        let proxy = FakeProxy::saying(reply).await;
        let message = Probe::of(proxy.address, URL).expect(ProbeReason::ProtocolError).await;
        assert!(message.contains("port of an HTTP proxy"), "{reply:?}: {message}");
    }
}

#[tokio::test]
async fn each_refusal_of_connect_has_its_own_reason() {
    use ProbeReason::{AuthRequired, BadGateway, Denied, TunnelRefused};
    for (line, expected, remedy) in [
        ("HTTP/1.0 407 Proxy Authentication Required", AuthRequired, "spec.auth.secretRef"),
        ("HTTP/1.1 401 Unauthorized", AuthRequired, "spec.auth.secretRef"),
        ("HTTP/1.1 403 Forbidden", Denied, "allow them in the proxy's configuration"),
        ("HTTP/1.1 502 Bad Gateway", BadGateway, "cannot reach the probe target"),
        ("HTTP/1.1 503 Service Unavailable", BadGateway, "cannot reach the probe target"),
        ("HTTP/1.1 504 Gateway Timeout", BadGateway, "cannot reach the probe target"),
        ("HTTP/1.1 405 Method Not Allowed", TunnelRefused, "must allow CONNECT"),
        ("HTTP/1.1 302 Found", TunnelRefused, "must allow CONNECT"),
    ] {
        let proxy = FakeProxy::saying(format!("{line}\r\nContent-Length: 0\r\n\r\n")).await;
        let message = Probe::of(proxy.address, URL).expect(expected).await;
        assert!(message.contains(remedy), "{line}: {message}");
    }
}

#[tokio::test]
async fn an_error_page_of_the_proxy_is_never_the_targets_answer() {
    let page = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok";
    let proxy = FakeProxy::saying(page).await;
    let mut probe = Probe::of(proxy.address, URL);
    probe.target.plan.expected_status = vec![200, 403];
    probe.expect(ProbeReason::Denied).await;
}

#[tokio::test]
async fn connect_names_host_and_port_and_the_request_does_not_carry_the_credentials() {
    let target = target();
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    Probe::of(proxy.address, URL).trusting(&target.ca_pem).with_password("user", "pass").expect_ok().await;
    let [connect, inner] = proxy.heads().try_into().unwrap();
    assert!(
        connect.starts_with("CONNECT target.test:443 HTTP/1.1\r\nHost: target.test:443\r\n"),
        "{connect}"
    );
    assert!(connect.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{connect}");
    assert!(inner.starts_with("GET /health?x=1 HTTP/1.1\r\n"), "{inner}");
    assert!(inner.contains("host: target.test\r\n"), "{inner}");
    assert!(!inner.to_lowercase().contains("authorization"), "{inner}");
}

#[tokio::test]
async fn ipv6_targets_stand_in_brackets() {
    let target = Target::named("::1", OK);
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    Probe::of(proxy.address, "https://[::1]:8443/").trusting(&target.ca_pem).expect_ok().await;
    let [connect, inner] = proxy.heads().try_into().unwrap();
    assert!(connect.starts_with("CONNECT [::1]:8443 HTTP/1.1\r\nHost: [::1]:8443\r\n"), "{connect}");
    assert!(inner.contains("host: [::1]:8443\r\n"), "{inner}");
}

#[tokio::test]
async fn odd_passwords_arrive_as_they_are() {
    for password in ["@:/%$#", "with space", "grün-密码", "a:b:c", "\"quoted\"\\", "tab\tand\u{7f}"] {
        let proxy = FakeProxy::saying("HTTP/1.1 407 No\r\n\r\n").await;
        let probe = Probe::of(proxy.address, URL).with_password("üser@example", password);
        let message = probe.expect(ProbeReason::AuthRequired).await;
        assert!(message.contains("refused the credentials"), "{message}");
        assert!(!message.contains(password), "no secret in a message");
        let head = proxy.heads().remove(0);
        let (_, rest) = head.split_once("Proxy-Authorization: Basic ").unwrap();
        let decoded = BASE64_STANDARD.decode(rest.split("\r\n").next().unwrap()).unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), format!("üser@example:{password}"));
    }
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_said_only_when_the_proxy_asks_for_it() {
    let missing = Auth::Missing("Secret squid-auth does not exist; create it".to_owned());
    let asking = FakeProxy::saying("HTTP/1.1 407 No\r\n\r\n").await;
    let mut probe = Probe::of(asking.address, URL);
    probe.target.auth = missing.clone();
    let message = probe.expect(ProbeReason::AuthSecretMissing).await;
    assert!(message.contains("Secret squid-auth does not exist; create it"), "{message}");
    let target = target();
    let open = FakeProxy::tunnel(OPENED, target.clone()).await;
    let mut probe = Probe::of(open.address, URL).trusting(&target.ca_pem);
    probe.target.auth = missing;
    probe.expect_ok().await;
}

#[tokio::test]
async fn bytes_after_the_head_belong_to_the_tunnel() {
    let proxy = FakeProxy::serve(|mut stream, _| async move {
        read_head(&mut stream).await?;
        stream.write_all(format!("{OPENED}early").as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(b" and late").await?;
        linger(&mut stream).await
    })
    .await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut tunnel = connect::open(stream, &ProbeUrl::parse(URL).unwrap(), &Auth::None).await.unwrap();
    let mut bytes = [0_u8; 14];
    tunnel.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"early and late");
}

#[tokio::test]
async fn a_tls_alert_in_the_segment_of_the_head_is_seen() {
    let mut reply = OPENED.as_bytes().to_vec();
    reply.extend_from_slice(&[0x15, 3, 3, 0, 2, 2, 40]);
    let proxy = FakeProxy::saying(reply).await;
    Probe::of(proxy.address, URL).expect(ProbeReason::Tls).await;
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let proxy = FakeProxy::serve(|mut stream, _| async move {
        read_head(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
        loop {
            stream.write_all(&[b"X-Filler: ", [b'a'; 1000].as_slice(), b"\r\n"].concat()).await?;
        }
    })
    .await;
    let message = Probe::of(proxy.address, URL).expect(ProbeReason::ProtocolError).await;
    assert!(message.contains("16 KiB"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_interim_answers_is_cut_off() {
    let proxy = FakeProxy::flooding("", "HTTP/1.1 100 C\r\n\r\n").await;
    let probe = Probe::of(proxy.address, URL);
    let message =
        tokio::time::timeout(Duration::from_secs(20), probe.expect(ProbeReason::ProtocolError)).await;
    assert!(message.as_ref().is_ok_and(|message| message.contains("16 KiB")), "{message:?}");
}

#[tokio::test]
async fn an_endless_drip_ends_with_the_time_of_the_probe() {
    let proxy = FakeProxy::serve(|mut stream, _| async move {
        read_head(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nX-Drip: ").await?;
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            stream.write_all(b"a").await?;
        }
    })
    .await;
    let probe = Probe::of(proxy.address, URL).with_timeout(Duration::from_millis(200));
    let message = probe.expect(ProbeReason::Timeout).await;
    assert!(message.contains("waiting for the proxy to answer CONNECT"), "{message}");
}

#[tokio::test]
async fn a_proxy_that_hangs_up_is_a_protocol_error() {
    let proxy = FakeProxy::serve(|mut stream, _| async move {
        read_head(&mut stream).await?;
        Ok(())
    })
    .await;
    let message = Probe::of(proxy.address, URL).expect(ProbeReason::ProtocolError).await;
    assert!(message.contains("closed the connection before it answered CONNECT"), "{message}");
}
