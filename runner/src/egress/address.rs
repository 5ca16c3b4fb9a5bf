//! Which addresses may never be asked, whatever name led to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where clouds tell their machines who they are, beyond the link-local ones.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
];

/// Which addresses are left alone.
#[derive(Debug, Clone, Default)]
pub struct Addresses {
    /// Whether the machine itself may be asked: for tests and for `cleat dev`.
    pub loopback: bool,
    /// Others that may not be asked, such as those of the API server.
    pub refused: Vec<IpAddr>,
}

impl Addresses {
    /// Why an address may not be asked, if it may not.
    pub fn refuse(&self, address: IpAddr) -> Option<&'static str> {
        let address = inner(address);
        if address.is_loopback() {
            // Where it is allowed, the API server is one of many there, and asks for its token.
            return (!self.loopback).then_some("a loopback address");
        }
        if self.refused.iter().any(|refused| inner(*refused) == address) {
            return Some("an address of the cluster's own control plane");
        }
        if METADATA.contains(&address) {
            return Some("a metadata address");
        }
        match address {
            IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("an unspecified address"),
            IpAddr::V4(v4) if v4.is_link_local() => Some("a link-local address"),
            IpAddr::V4(v4) if v4.is_broadcast() => Some("a broadcast address"),
            IpAddr::V6(v6) if v6.is_unspecified() => Some("an unspecified address"),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("a link-local address"),
            _ if address.is_multicast() => Some("a multicast address"),
            _ => None,
        }
    }
}

/// The address that an address of version 6 stands for, if it stands for one of version 4: mapped, compatible, translated (NAT64) or
/// tunnelled (6to4).
fn inner(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if v6.is_loopback() || v6.is_unspecified() {
        return address;
    }
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(addresses: &Addresses, text: &str) -> bool {
        addresses.refuse(text.parse().unwrap()).is_some()
    }

    #[test]
    fn a_service_may_run_beside_the_api_server_of_a_developer() {
        let refused = vec!["127.0.0.1".parse().unwrap(), "10.96.0.1".parse().unwrap()];
        let addresses = Addresses { loopback: true, refused };
        assert_eq!(addresses.refuse("127.0.0.1".parse().unwrap()), None);
        assert!(addresses.refuse("10.96.0.1".parse().unwrap()).is_some());
    }

    #[test]
    fn what_is_not_a_service_is_refused_in_every_notation() {
        let addresses = Addresses { loopback: false, refused: vec!["10.96.0.1".parse().unwrap()] };
        for text in [
            "127.0.0.1",
            "127.8.9.10",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "100.100.100.200",
            "fd00:ec2::254",
            "10.96.0.1",
            "::ffff:10.96.0.1",
        ] {
            assert!(refused(&addresses, text), "{text}");
        }
        for text in ["10.0.0.1", "192.168.1.1", "1.1.1.1", "fd00::1", "2001:db8::1", "::ffff:10.0.0.1"] {
            assert!(!refused(&addresses, text), "{text}");
        }
    }

    #[test]
    fn the_machine_itself_can_be_allowed_and_nothing_else() {
        let addresses = Addresses { loopback: true, refused: Vec::new() };
        assert!(!refused(&addresses, "127.0.0.1"));
        assert!(!refused(&addresses, "::1"));
        assert!(refused(&addresses, "169.254.169.254"));
        assert!(refused(&addresses, "0.0.0.0"));
    }
}
