//! Networks as people write them, judged by what Squid makes of them.
//!
//! To Squid an IPv4 address is an IPv6 one (`::ffff:a.b.c.d`), and a network of everything is everything
//! in both. Must never let a network through that Squid would take for a larger one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use egress_proxies_provider_sdk::failure::{invalid, quote};
use egress_proxies_provider_sdk::model::Failure;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Where IPv4 is within IPv6.
const MAPPED: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0);
/// Bits before the IPv4 address in a mapped and in a translated (NAT64) address.
const PREFIX: u8 = 96;

/// Networks of clients. Everybody is `0.0.0.0/0` and `::/0` together.
pub(crate) fn clients(texts: &[String], pointer: &str) -> Result<Vec<IpNet>, Failure> {
    let networks = read_all(texts, pointer)?;
    let everything =
        |is_v4: bool| networks.iter().position(|net| net.prefix_len() == 0 && net.addr().is_ipv4() == is_v4);
    match (everything(true), everything(false)) {
        (Some(at), None) | (None, Some(at)) => {
            let pointer = format!("{pointer}/{at}");
            let message = format!(
                "{pointer}: Squid takes all of IPv4 or all of IPv6 for both; to serve everybody list 0.0.0.0/0 and ::/0, otherwise name smaller networks"
            );
            Err(invalid(pointer, message))
        }
        (Some(_), Some(_)) | (None, None) => Ok(networks),
    }
}

/// Networks that nobody is connected to.
pub(crate) fn destinations(texts: &[String], pointer: &str) -> Result<Vec<IpNet>, Failure> {
    let networks = read_all(texts, pointer)?;
    match networks.iter().position(|net| net.prefix_len() == 0) {
        Some(at) => {
            let pointer = format!("{pointer}/{at}");
            let message = format!(
                "{pointer}: Squid takes all of IPv4 or all of IPv6 for both, and nothing could be reached; write 2000::/3 for the public part of IPv6"
            );
            Err(invalid(pointer, message))
        }
        None => Ok(networks),
    }
}

/// The same destinations by way of a NAT64 gateway (64:ff9b::/96). The prefix as a whole is not denied:
/// where a cluster has IPv6 alone, all of IPv4 is reached through it.
pub(crate) fn translated(network: &IpNet) -> Option<IpNet> {
    match network {
        IpNet::V4(v4) => {
            let bits = u128::from(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0))
                | u128::from(u32::from(v4.network()));
            Ipv6Net::new(Ipv6Addr::from(bits), PREFIX.saturating_add(v4.prefix_len())).ok().map(IpNet::V6)
        }
        IpNet::V6(_) => None,
    }
}

fn read_all(texts: &[String], pointer: &str) -> Result<Vec<IpNet>, Failure> {
    texts.iter().enumerate().map(|(index, text)| read(text, &format!("{pointer}/{index}"))).collect()
}

fn read(text: &str, pointer: &str) -> Result<IpNet, Failure> {
    let network =
        text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
            let message = format!(
                "{pointer}: \"{}\" is not a network; write it as 10.0.0.0/8 or fd00::/8",
                quote(text)
            );
            invalid(pointer, message)
        })?;
    match plain(network.trunc()) {
        IpNet::V6(v6) if v6.prefix_len() > 0 && v6.contains(&MAPPED) => {
            let message = format!("{pointer}: {v6} has all of IPv4 in it, to Squid; write a smaller network");
            Err(invalid(pointer, message))
        }
        network @ (IpNet::V4(_) | IpNet::V6(_)) => Ok(network),
    }
}

/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
fn plain(network: IpNet) -> IpNet {
    let within = match network {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.prefix_len().checked_sub(PREFIX).zip(v6.addr().to_ipv4_mapped()),
    };
    let as_v4 = |(bits, address): (u8, Ipv4Addr)| Ipv4Net::new(address, bits).ok();
    within.and_then(as_v4).map_or(network, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use egress_proxies_provider_sdk::model::Reason;

    use super::*;

    type Read = fn(&[String], &str) -> Result<Vec<IpNet>, Failure>;

    fn fault(read: Read, texts: &[&str]) -> Option<String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let Reason::Invalid(pointer) = read(&texts, "/config/x").err()?.reason else { panic!() };
        Some(pointer)
    }

    #[test]
    fn everybody_is_both_families_or_nobody() {
        assert_eq!(fault(clients, &["10.0.0.0/8", "0.0.0.0/0"]).as_deref(), Some("/config/x/1"));
        assert_eq!(fault(clients, &["::/0"]).as_deref(), Some("/config/x/0"));
        assert_eq!(fault(clients, &["::/0", "0.0.0.0/0"]), None);
        assert_eq!(fault(clients, &["0.0.0.0/1", "2000::/3"]), None);
    }

    #[test]
    fn a_network_that_squid_would_take_for_a_larger_one_is_refused() {
        for network in ["::/1", "::/64", "::/80", "::/95"] {
            let expected = if network == "::/95" { None } else { Some("/config/x/0") };
            assert_eq!(fault(clients, &[network]).as_deref(), expected, "{network}");
            assert_eq!(fault(destinations, &[network]).as_deref(), expected, "{network}");
        }
        for network in ["0.0.0.0/0", "::/0"] {
            assert_eq!(fault(destinations, &["1.0.0.0/8", network]).as_deref(), Some("/config/x/1"));
        }
    }

    #[test]
    fn ipv4_written_as_ipv6_is_ipv4() {
        let read = |text: &str| clients(&[text.to_owned()], "").unwrap()[0].to_string();
        assert_eq!(read("::ffff:10.1.2.3/104"), "10.0.0.0/8");
        assert_eq!(read("::ffff:10.1.2.3"), "10.1.2.3/32");
        assert_eq!(read("fd00::1/64"), "fd00::/64");
    }

    #[test]
    fn a_destination_behind_nat64_is_the_same_destination() {
        let translate = |text: &str| translated(&text.parse().unwrap()).map(|network| network.to_string());
        assert_eq!(translate("169.254.0.0/16").as_deref(), Some("64:ff9b::a9fe:0/112"));
        assert_eq!(translate("0.0.0.0/8").as_deref(), Some("64:ff9b::/104"));
        assert_eq!(translate("192.0.0.192/32").as_deref(), Some("64:ff9b::c000:c0/128"));
        assert_eq!(translate("fe80::/10"), None);
    }
}
