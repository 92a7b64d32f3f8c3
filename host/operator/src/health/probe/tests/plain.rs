//! Plain `http://` probes: absolute-form, and whose answer it was.

use std::time::Duration;

use egress_proxies_core::health::ProbeReason;
use tokio::io::AsyncWriteExt;

use super::fakes::{FakeProxy, OK, Probe, read_head};

const URL: &str = "http://target.test:8080/health";

#[tokio::test]
async fn a_plain_request_is_in_absolute_form_with_the_credentials() {
    let proxy = FakeProxy::saying(OK).await;
    Probe::of(proxy.address, URL).with_password("user", "pass").expect_ok().await;
    let head = proxy.heads().remove(0);
    assert!(head.starts_with("GET http://target.test:8080/health HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: target.test:8080\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
}

#[tokio::test]
async fn a_url_without_path_or_port_gets_the_usual_ones() {
    let proxy = FakeProxy::saying(OK).await;
    Probe::of(proxy.address, "HTTP://target.test").expect_ok().await;
    let head = proxy.heads().remove(0);
    assert!(head.starts_with("GET http://target.test/ HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: target.test\r\n"), "{head}");
}

#[tokio::test]
async fn the_proxys_own_answers_are_told_from_the_targets() {
    use ProbeReason::{AuthRequired, BadGateway, Denied, UnexpectedStatus};
    for (status, headers, expected) in [
        (407, "", AuthRequired),
        (407, "Via: 1.1 squid\r\n", AuthRequired),
        (407, "Proxy-Authenticate: Basic realm=\"x\"\r\n", AuthRequired),
        (401, "Proxy-Authenticate: Basic realm=\"x\"\r\n", AuthRequired),
        (401, "", UnexpectedStatus),
        (401, "WWW-Authenticate: Basic realm=\"x\"\r\n", UnexpectedStatus),
        (401, "X-Squid-Error: ERR_X 0\r\n", UnexpectedStatus),
        (403, "", UnexpectedStatus),
        (403, "X-Squid-Error: ERR_ACCESS_DENIED 0\r\n", Denied),
        (403, "Proxy-Status: px; error=http_request_denied\r\n", Denied),
        (403, "X-Squid-Error: ERR_ACCESS_DENIED 0\r\nVia: 1.1 squid\r\n", Denied),
        (403, "Via: 1.1 squid\r\n", UnexpectedStatus),
        (502, "", UnexpectedStatus),
        (503, "", UnexpectedStatus),
        (504, "", UnexpectedStatus),
        (502, "X-Squid-Error: ERR_CONNECT_FAIL 111\r\n", BadGateway),
        (502, "Proxy-Status: px; received-status=502\r\n", UnexpectedStatus),
        (503, "X-Squid-Error: ERR_DNS_FAIL 0\r\nVia: 1.1 squid\r\n", BadGateway),
        (503, "Via: 1.1 squid\r\n", UnexpectedStatus),
        (504, "Proxy-Status: px; error=connection_timeout\r\nVia: 1.1 px\r\n", BadGateway),
        (500, "", UnexpectedStatus),
        (404, "X-Squid-Error: ERR_CACHE_ACCESS 0\r\n", UnexpectedStatus),
        (302, "Location: http://target.test/\r\n", UnexpectedStatus),
    ] {
        let proxy =
            FakeProxy::saying(format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: 2\r\n\r\nok")).await;
        Probe::of(proxy.address, URL).expect(expected).await;
        assert_eq!(proxy.heads().len(), 1, "nothing followed");
    }
}

#[tokio::test]
async fn an_answer_that_may_be_either_ones_says_so() {
    let proxy = FakeProxy::saying("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n").await;
    let message = Probe::of(proxy.address, URL).expect(ProbeReason::UnexpectedStatus).await;
    assert!(message.contains("the probe target, or the proxy in its place"), "{message}");
}

#[tokio::test]
async fn interim_answers_pass_but_not_without_end() {
    let few = format!("{}{OK}", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(9));
    let proxy = FakeProxy::saying(few).await;
    Probe::of(proxy.address, URL).expect_ok().await;

    for head in ["HTTP/1.1 100 C\r\n\r\n".to_owned(), format!("HTTP/1.1 100 {}\r\n\r\n", "c".repeat(9000))] {
        let proxy = FakeProxy::flooding("", &head.repeat(4)).await;
        let message = Probe::of(proxy.address, URL).expect(ProbeReason::ProtocolError).await;
        assert!(message.contains("16 KiB"), "{message}");
    }
}

#[tokio::test]
async fn an_expected_status_counts_unless_the_proxy_says_that_it_is_its_own() {
    for (headers, passes) in [("", true), ("X-Squid-Error: ERR_ACCESS_DENIED 0\r\n", false)] {
        let proxy = FakeProxy::saying(format!("HTTP/1.1 403 X\r\n{headers}Content-Length: 0\r\n\r\n")).await;
        let mut probe = Probe::of(proxy.address, URL);
        probe.target.plan.expected_status = vec![403];
        if passes { probe.expect_ok().await } else { drop(probe.expect(ProbeReason::Denied).await) }
    }
}

#[tokio::test]
async fn what_is_not_http_or_breaks_off_is_a_protocol_error() {
    for (reply, fault) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", "not HTTP/1"),
        ("HTTP/1.1 2000 OK\r\n\r\n", "not HTTP/1"),
        ("HTTP/1.1 200 OK\r\nContent-Le", "closed too early"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "broke off"),
    ] {
        let proxy = FakeProxy::serve(move |mut stream, _| async move {
            read_head(&mut stream).await?;
            stream.write_all(reply.as_bytes()).await
        })
        .await;
        let message = Probe::of(proxy.address, URL).expect(ProbeReason::ProtocolError).await;
        assert!(message.contains(fault), "{reply:?}: {message}");
    }
}

#[tokio::test]
async fn a_huge_head_is_refused() {
    let huge = format!("HTTP/1.1 200 OK\r\nX-Filler: {}\r\n\r\n", "a".repeat(100_000));
    let proxy = FakeProxy::saying(huge).await;
    let message = Probe::of(proxy.address, URL).expect(ProbeReason::ProtocolError).await;
    assert!(message.contains("16 KiB"), "{message}");
}

#[tokio::test]
async fn an_answer_that_drips_for_ever_ends_with_the_time_of_the_probe() {
    let proxy = FakeProxy::serve(|mut stream, _| async move {
        read_head(&mut stream).await?;
        for byte in "HTTP/1.1 200 OK\r\nX-Drip: ".bytes().chain(std::iter::repeat(b'a')) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            stream.write_all(&[byte]).await?;
        }
        Ok(())
    })
    .await;
    Probe::of(proxy.address, URL).with_timeout(Duration::from_millis(200)).expect(ProbeReason::Timeout).await;
}

#[tokio::test]
async fn a_url_that_cannot_be_used_says_what_is_wrong() {
    let proxy = FakeProxy::saying(OK).await;
    for (url, fault) in [
        ("", "URL"),
        ("target.test", "begin with http:// or https://"),
        ("ftp://target.test/", "begin with http:// or https://"),
        ("http://user:secret@target.test/", "user name or a password"),
        ("http://target.test:0/", "port must be between 1 and 65535"),
        ("http://target.test:70000/", "1 and 65535"),
        ("http://tärget.test/", "plain ASCII"),
    ] {
        let message = Probe::of(proxy.address, url).expect(ProbeReason::ProbeUrlInvalid).await;
        assert!(message.contains(fault) && message.contains("spec.healthCheck.url"), "{url}: {message}");
        assert!(!message.contains("secret@"), "{message}");
    }
    assert!(proxy.heads().is_empty());
}
