//! The address of a proxy as URLs that any client can take.

use std::net::Ipv6Addr;

use egress_proxies_core::facts::Machine;
use egress_proxies_core::provider::Credentials;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986. Clients disagree on what else may stand in a user
/// name or password; all of them decode what is encoded.
const USERINFO: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `http://host:port`; an IPv6 address in brackets.
pub(super) fn server(machine: &Machine) -> String {
    format!("http://{}", authority(machine))
}

/// `http://user:password@host:port`, percent-encoded.
pub(super) fn with_credentials(machine: &Machine, credentials: &Credentials) -> String {
    let user = utf8_percent_encode(credentials.username.expose(), USERINFO);
    let password = utf8_percent_encode(credentials.password.expose(), USERINFO);
    format!("http://{user}:{password}@{}", authority(machine))
}

fn authority(machine: &Machine) -> String {
    if machine.address.parse::<Ipv6Addr>().is_ok() {
        format!("[{}]:{}", machine.address, machine.port)
    } else {
        format!("{}:{}", machine.address, machine.port)
    }
}

#[cfg(test)]
mod tests {
    use egress_proxies_core::ids::Incarnation;
    use egress_proxies_core::provider::Secret;
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;
    use url::Url;

    use super::*;

    fn machine(address: &str) -> Machine {
        Machine { incarnation: Incarnation::parse("m").unwrap(), address: address.to_owned(), port: 3128 }
    }

    fn decoded(user: &str, password: &str, address: &str) -> (String, String, String) {
        let credentials = Credentials {
            username: Secret::new(user.to_owned()),
            password: Secret::new(password.to_owned()),
        };
        let url = Url::parse(&with_credentials(&machine(address), &credentials)).unwrap();
        let decode = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
        let host = url.host_str().unwrap().to_owned();
        assert_eq!(url.port(), Some(3128));
        (decode(url.username()), decode(url.password().unwrap_or_default()), host)
    }

    #[test]
    fn awkward_passwords_survive_the_way_through_a_url_parser() {
        let password = "p@ss:w/o r%d$#?&[]é💥\"'\\";
        let (user, found, host) = decoded("us:er@corp", password, "2001:db8::1");
        assert_eq!((user.as_str(), found.as_str(), host.as_str()), ("us:er@corp", password, "[2001:db8::1]"));
    }

    #[test]
    fn the_server_has_no_credentials_and_brackets_around_ipv6_alone() {
        assert_eq!(server(&machine("2001:db8::1")), "http://[2001:db8::1]:3128");
        assert_eq!(server(&machine("192.0.2.1")), "http://192.0.2.1:3128");
        assert_eq!(server(&machine("proxy.example.com")), "http://proxy.example.com:3128");
    }

    proptest! {
        #[test]
        fn every_password_survives(user in "\\PC{1,20}", password in "\\PC{1,40}") {
            let (found_user, found_password, _) = decoded(&user, &password, "192.0.2.1");
            prop_assert_eq!((found_user, found_password), (user, password));
        }
    }
}
