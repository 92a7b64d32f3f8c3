//! Which addresses may be connected to, and which a machine may have: the same answer for what a provider
//! says (`host/wasm`) and for where a machine's name leads when it is probed.
//!
//! Pure. Metadata services hand out credentials to whoever can reach them, and they can be written in many
//! ways: IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4, Teredo) is unwrapped before it is judged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// What an address is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// Routed on the internet.
    Public,
    /// Private, loopback, shared or documentation space: only where the administrator lists it.
    Private,
    /// Link-local, metadata, multicast, unspecified, reserved: never.
    Never,
}

/// Networks that no grant opens: one of them inside a granted network makes the grant faulty.
const NEVER_V4: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];
/// Metadata addresses outside of link-local space: Alibaba, Oracle, Azure.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];
/// The same over IPv6: Amazon (metadata, pod identity), Google, Scaleway.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

/// Judges one address.
pub fn kind(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(v4) => kind_v4(v4),
        IpAddr::V6(v6) => kind_v6(v6),
    }
}

/// True if the address may be used: public, or private and inside one of the listed networks.
pub fn allowed(address: IpAddr, listed: &[IpNet]) -> bool {
    match kind(address) {
        AddressKind::Public => true,
        AddressKind::Private => listed.iter().any(|net| net.contains(&address)),
        AddressKind::Never => false,
    }
}

/// True if a network reaches into space that is never allowed.
pub fn never_allowed_in(net: IpNet) -> bool {
    match net {
        IpNet::V4(net) => {
            NEVER_V4.iter().any(|(base, bits)| {
                ipnet::Ipv4Net::new(*base, *bits)
                    .is_ok_and(|never| never.contains(&net) || net.contains(&never))
            }) || METADATA_V4.iter().any(|metadata| net.contains(metadata))
        }
        IpNet::V6(net) => {
            METADATA_V6.iter().any(|metadata| net.contains(metadata))
                || matches!(kind_v6(net.network()), AddressKind::Never)
                || matches!(kind_v6(net.broadcast()), AddressKind::Never)
                || net.prefix_len() < 7
        }
    }
}

fn kind_v4(address: Ipv4Addr) -> AddressKind {
    let never = NEVER_V4
        .iter()
        .any(|(base, bits)| ipnet::Ipv4Net::new(*base, *bits).is_ok_and(|net| net.contains(&address)));
    let [a, b, c, _] = address.octets();
    if never || METADATA_V4.contains(&address) {
        AddressKind::Never
    } else if address.is_private()
        || address.is_loopback()
        || address.is_documentation()
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || (a == 192 && b == 0 && c == 0)
    {
        AddressKind::Private
    } else {
        AddressKind::Public
    }
}

fn kind_v6(address: Ipv6Addr) -> AddressKind {
    if address == Ipv6Addr::LOCALHOST {
        return AddressKind::Private;
    }
    if let Some(inner) = embedded_v4(address) {
        // A wrapped private address is never meant: whoever lists a private network lists it plainly.
        return match kind_v4(inner) {
            AddressKind::Public => AddressKind::Public,
            AddressKind::Private | AddressKind::Never => AddressKind::Never,
        };
    }
    let [first, second, ..] = address.segments();
    if address.is_unspecified()
        || address.is_multicast()
        || METADATA_V6.contains(&address)
        || first & 0xffc0 == 0xfe80
        || first & 0xffc0 == 0xfec0
    {
        AddressKind::Never
    } else if first & 0xfe00 == 0xfc00 || (first == 0x2001 && second == 0x0db8) {
        AddressKind::Private
    } else if first & 0xe000 == 0x2000 {
        AddressKind::Public
    } else {
        AddressKind::Never
    }
}

/// The IPv4 address inside an IPv6 one: mapped, compatible, translated, NAT64, 6to4, Teredo.
pub fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match (s0, s1) {
        // ::ffff:a.b.c.d and ::a.b.c.d, but not ::1 and ::
        (0, 0) if (s2, s3, s4) == (0, 0, 0) && (s5 == 0xffff || (s5 == 0 && (s6 != 0 || s7 > 1))) => {
            Some(join(s6, s7))
        }
        // ::ffff:0:a.b.c.d (translated)
        (0, 0) if (s2, s3, s4, s5) == (0, 0, 0xffff, 0) => Some(join(s6, s7)),
        // 64:ff9b::/96 and the local-use 64:ff9b:1::/48 (NAT64)
        (0x64, 0xff9b) => Some(join(s6, s7)),
        // 2002::/16 (6to4)
        (0x2002, _) => Some(join(s1, s2)),
        // 2001::/32 (Teredo): the client's address, inverted
        (0x2001, 0) => Some(join(!s6, !s7)),
        _ => None,
    }
}

/// Where an address leads: the IPv4 one inside it, or itself.
pub fn led_to(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded_v4(v6).map_or(address, IpAddr::V4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(expected: AddressKind, texts: &[&str]) {
        for text in texts {
            assert_eq!(kind(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn metadata_is_never_allowed_however_it_is_written() {
        kinds(
            AddressKind::Never,
            &[
                "169.254.169.254",
                "100.100.100.200",
                "192.0.0.192",
                "168.63.129.16",
                "64:ff9b::a83f:8110",
                "::ffff:169.254.169.254",
                "::169.254.169.254",
                "64:ff9b::a9fe:a9fe",
                "64:ff9b:1::a9fe:a9fe",
                "2002:a9fe:a9fe::1",
                "fd00:ec2::254",
                "fd00:ec2::23",
                "fd20:ce::254",
                "fd00:42::42",
                "fe80::1",
                "0.0.0.0",
                "::",
                "255.255.255.255",
                "224.0.0.1",
                "ff02::1",
                "::ffff:10.0.0.1",
                "2002:7f00:1::",
            ],
        );
        let everything = ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        assert!(!allowed("::ffff:169.254.169.254".parse().unwrap(), &everything));
        assert!(!allowed("169.254.169.254".parse().unwrap(), &everything));
    }

    #[test]
    fn private_space_needs_a_grant_that_contains_it() {
        kinds(
            AddressKind::Private,
            &["10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "::1", "fd12::1", "100.64.0.1"],
        );
        let ten = ["10.0.0.0/8".parse().unwrap()];
        assert!(allowed("10.1.2.3".parse().unwrap(), &ten));
        assert!(!allowed("192.168.1.1".parse().unwrap(), &ten));
    }

    #[test]
    fn public_addresses_need_none() {
        kinds(
            AddressKind::Public,
            &["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"],
        );
    }

    #[test]
    fn a_grant_that_reaches_into_forbidden_space_is_faulty() {
        for bad in [
            "0.0.0.0/0",
            "169.254.169.254/32",
            "100.100.0.0/16",
            "fe80::/10",
            "fd00::/8",
            "fd20:ce::/64",
            "168.63.0.0/16",
            "::/0",
            "224.0.0.0/4",
        ] {
            assert!(never_allowed_in(bad.parse().unwrap()), "{bad}");
        }
        for good in
            ["10.0.0.0/8", "127.0.0.1/32", "100.64.0.0/16", "fd12:3456::/32", "::1/128", "172.16.0.0/12"]
        {
            assert!(!never_allowed_in(good.parse().unwrap()), "{good}");
        }
    }

    #[test]
    fn every_spelling_of_an_ipv4_address_leads_to_it() {
        for spelling in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2001::5601:5601",
        ] {
            assert_eq!(led_to(spelling.parse().unwrap()).to_string(), "169.254.169.254", "{spelling}");
        }
        for own in ["::1", "::", "2001:db8::1", "fd00::a9fe:a9fe", "2606:4700::1111"] {
            assert_eq!(led_to(own.parse().unwrap()).to_string(), own);
        }
    }
}
