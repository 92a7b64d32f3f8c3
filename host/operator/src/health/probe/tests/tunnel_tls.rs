//! Inside the tunnel: certificates, and the target's own answers.

use std::time::Duration;

use egress_proxies_core::facts::CaPem;
use egress_proxies_core::health::ProbeReason;
use rcgen::{CertificateParams, date_time_ymd};

use super::fakes::{FakeProxy, OK, OPENED, Probe, Target};

const URL: &str = "https://target.test/";

#[tokio::test]
async fn a_certificate_that_is_not_valid_fails_and_says_how() {
    let mut expired = CertificateParams::new(vec!["target.test".to_owned()]).unwrap();
    expired.not_before = date_time_ymd(2019, 1, 1);
    expired.not_after = date_time_ymd(2020, 1, 1);
    let mut early = CertificateParams::new(vec!["target.test".to_owned()]).unwrap();
    early.not_before = date_time_ymd(2190, 1, 1);
    early.not_after = date_time_ymd(2200, 1, 1);
    for (target, trusted, fault) in [
        (Target::with(&expired, OK), true, "has expired"),
        (Target::with(&early, OK), true, "not valid yet"),
        (Target::named("other.test", OK), true, "for another host"),
        (Target::named("target.test", OK), false, "unknown CA"),
    ] {
        let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
        let mut probe = Probe::of(proxy.address, URL);
        if trusted {
            probe = probe.trusting(&target.ca_pem);
        }
        let message = probe.expect(ProbeReason::Tls).await;
        assert!(message.contains(fault), "{message}");
        assert!(!message.bytes().any(|b| b.is_ascii_digit()), "no times: {message}");

        probe.target.plan.insecure_skip_verify = true;
        probe.expect_ok().await;
    }
}

#[tokio::test]
async fn a_ca_that_cannot_be_read_is_said() {
    let target = Target::named("target.test", OK);
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    let broken = target.ca_pem.replacen("MII", "!!!", 1);
    for pem in ["", "no pem", broken.as_str()] {
        let message = Probe::of(proxy.address, URL).trusting(pem).expect(ProbeReason::CaInvalid).await;
        assert!(message.contains("caSecretRef"), "{message}");
    }
}

#[tokio::test]
async fn a_ca_secret_that_cannot_be_read_is_nobodys_fault_and_hides_none_of_the_proxys() {
    let target = Target::named("target.test", OK);
    let missing = CaPem::Missing("no Secret ca with the label example".to_owned());
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    let mut probe = Probe::of(proxy.address, URL);
    probe.target.plan.ca_pem = Some(missing.clone());
    let message = probe.expect(ProbeReason::CaSecretMissing).await;
    assert!(message.contains("unknown CA") && message.contains("no Secret ca with the label"), "{message}");

    for pem in [missing, CaPem::Read("no pem".to_owned())] {
        let refusing = FakeProxy::tunnel("HTTP/1.1 403 Forbidden\r\n\r\n", target.clone()).await;
        let mut probe = Probe::of(refusing.address, URL);
        probe.target.plan.ca_pem = Some(pem);
        probe.expect(ProbeReason::Denied).await;
    }
}

#[tokio::test]
async fn the_targets_status_decides_inside_the_tunnel() {
    for (answer, expected) in [
        ("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "answered with 500, expected 200"),
        ("HTTP/1.1 407 Odd\r\nContent-Length: 0\r\n\r\n", "answered with 407, expected 200"),
        ("HTTP/1.1 403 No\r\nX-Squid-Error: ERR\r\nContent-Length: 0\r\n\r\n", "answered with 403"),
        ("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "redirects are not followed"),
    ] {
        let target = Target::named("target.test", answer);
        let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
        let message = Probe::of(proxy.address, URL)
            .trusting(&target.ca_pem)
            .expect(ProbeReason::UnexpectedStatus)
            .await;
        assert!(message.contains(expected), "{message}");
        assert_eq!(proxy.heads().len(), 2, "one CONNECT, one request, nothing followed");
    }
}

#[tokio::test]
async fn other_statuses_count_when_they_are_expected() {
    let target = Target::named("target.test", "HTTP/1.1 204 No Content\r\n\r\n");
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    let mut probe = Probe::of(proxy.address, URL).trusting(&target.ca_pem);
    probe.target.plan.expected_status = vec![200, 204];
    probe.expect_ok().await;
}

#[tokio::test]
async fn a_body_that_never_comes_is_a_time_out_and_one_without_end_is_cut() {
    let target = Target::named("target.test", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    let probe =
        Probe::of(proxy.address, URL).trusting(&target.ca_pem).with_timeout(Duration::from_millis(500));
    let message = probe.expect(ProbeReason::Timeout).await;
    assert!(message.contains("waiting for the answer to the request"), "{message}");

    let long: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{}", "x".repeat(70_000)).into(),
    );
    let target = Target::named("target.test", long);
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    Probe::of(proxy.address, URL).trusting(&target.ca_pem).expect_ok().await;
}

#[tokio::test]
async fn each_probe_makes_its_own_connection_and_handshake() {
    let target = Target::named("target.test", OK);
    let proxy = FakeProxy::tunnel(OPENED, target.clone()).await;
    let probe = Probe::of(proxy.address, URL).trusting(&target.ca_pem);
    probe.expect_ok().await;
    probe.expect_ok().await;
    let connects = proxy.heads().iter().filter(|head| head.starts_with("CONNECT")).count();
    assert_eq!(connects, 2, "a kept tunnel would hide a proxy that is gone");
    let address = proxy.address;
    drop(proxy);
    Probe::of(address, URL).expect(ProbeReason::Refused).await;
}
