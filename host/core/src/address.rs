//! Addresses that lead elsewhere than they say.
//!
//! An IPv6 address may carry an IPv4 one, and then leads to that host. Whoever judges addresses looks at the
//! inner one, or `127.0.0.1` gets past in another spelling.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
