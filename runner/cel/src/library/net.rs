//! Addresses and networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::library::conversions::shortened;
use crate::value::{Opaque, Value};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "ip",
        overloads: &["ip(string) ip", "cidr.ip() ip"],
        call: |args, _| match args {
            [Value::String(text)] => parse_ip(text).map(|ip| wrap(Opaque::Ip(ip))),
            args => cidr(args).map(|cidr| wrap(Opaque::Ip(Ip(cidr.address)))),
        },
    },
    Function {
        name: "isIP",
        overloads: &["isIP(string) bool"],
        call: |args, _| Ok(Value::Bool(parse_ip(text(args)?).is_ok())),
    },
    Function {
        name: "ip.isCanonical",
        overloads: &["ip.isCanonical(string) bool"],
        call: |args, _| Ok(Value::Bool(parse_ip(text(args)?)?.to_string() == text(args)?)),
    },
    Function {
        name: "family",
        overloads: &["ip.family() int"],
        call: |args, _| Ok(Value::Int(if ip(args)?.is_ipv4() { 4 } else { 6 })),
    },
    Function {
        name: "isUnspecified",
        overloads: &["ip.isUnspecified() bool"],
        call: |args, _| Ok(Value::Bool(ip(args)?.is_unspecified())),
    },
    Function {
        name: "isLoopback",
        overloads: &["ip.isLoopback() bool"],
        call: |args, _| Ok(Value::Bool(ip(args)?.is_loopback())),
    },
    Function {
        name: "isLinkLocalMulticast",
        overloads: &["ip.isLinkLocalMulticast() bool"],
        call: |args, _| Ok(Value::Bool(is_link_local_multicast(ip(args)?))),
    },
    Function {
        name: "isLinkLocalUnicast",
        overloads: &["ip.isLinkLocalUnicast() bool"],
        call: |args, _| Ok(Value::Bool(is_link_local_unicast(ip(args)?))),
    },
    Function {
        name: "isGlobalUnicast",
        overloads: &["ip.isGlobalUnicast() bool"],
        call: |args, _| Ok(Value::Bool(is_global_unicast(ip(args)?))),
    },
    Function {
        name: "cidr",
        overloads: &["cidr(string) cidr"],
        call: |args, _| parse_cidr(text(args)?).map(|cidr| wrap(Opaque::Cidr(cidr))),
    },
    Function {
        name: "isCIDR",
        overloads: &["isCIDR(string) bool"],
        call: |args, _| Ok(Value::Bool(parse_cidr(text(args)?).is_ok())),
    },
    Function {
        name: "containsIP",
        overloads: &["cidr.containsIP(string) bool", "cidr.containsIP(ip) bool"],
        call: contains_ip,
    },
    Function {
        name: "containsCIDR",
        overloads: &["cidr.containsCIDR(string) bool", "cidr.containsCIDR(cidr) bool"],
        call: contains_cidr,
    },
    Function {
        name: "prefixLength",
        overloads: &["cidr.prefixLength() int"],
        call: |args, _| Ok(Value::Int(cidr(args)?.bits.into())),
    },
    Function {
        name: "masked",
        overloads: &["cidr.masked() cidr"],
        call: |args, _| {
            cidr(args).map(|cidr| wrap(Opaque::Cidr(Cidr { address: cidr.network(), bits: cidr.bits })))
        },
    },
];

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ip(pub IpAddr);

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub address: IpAddr,
    pub bits: u8,
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    /// The address with all bits behind the prefix zero.
    fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(self.bits.into())).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(self.bits.into())).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, bits: self.bits }.network() == self.network()
    }
}

fn wrap(opaque: Opaque) -> Value {
    Value::Opaque(Arc::new(opaque))
}

fn text(args: &[Value]) -> Result<&str, Fault> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn ip(args: &[Value]) -> Result<IpAddr, Fault> {
    match args {
        [Value::Opaque(opaque)] => match &**opaque {
            Opaque::Ip(ip) => Ok(ip.0),
            _ => Err(Fault::NoSuchOverload),
        },
        _ => Err(Fault::NoSuchOverload),
    }
}

fn cidr(args: &[Value]) -> Result<Cidr, Fault> {
    match args {
        [Value::Opaque(opaque), ..] => match &**opaque {
            Opaque::Cidr(cidr) => Ok(*cidr),
            _ => Err(Fault::NoSuchOverload),
        },
        _ => Err(Fault::NoSuchOverload),
    }
}

fn parse_ip(text: &str) -> Result<Ip, Fault> {
    if text.contains('%') {
        return Err(Fault::invalid(format!("IP address {} with zone value is not allowed", shortened(text))));
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(Fault::invalid(format!("IPv4-mapped IPv6 address {} is not allowed", shortened(text))))
        }
        Ok(address) => Ok(Ip(address)),
        Err(_) => Err(Fault::invalid(format!(
            "IP Address {0} parse error during conversion from string: ParseAddr({0}): unable to parse IP",
            shortened(text)
        ))),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, Fault> {
    // The API server says it twice.
    let failed = |why: &str| {
        let what = "network address parse error during conversion from string";
        Fault::invalid(format!("{what}: {what}: netip.ParsePrefix({}): {why}", shortened(text)))
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| failed("no '/'"))?;
    if address.contains('%') {
        return Err(failed("IPv6 zones cannot be present in a prefix"));
    }
    let address: IpAddr = address
        .parse()
        .map_err(|_| failed(&format!("ParseAddr({}): unable to parse IP", shortened(address))))?;
    let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (bits.len() > 1 && bits.starts_with('0')) {
        return Err(failed(&format!("bad bits after slash: {}", shortened(bits))));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 =
        bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| failed("prefix length out of range"))?;
    if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        return Err(Fault::invalid(format!("IPv4-mapped IPv6 address {} is not allowed", shortened(text))));
    }
    Ok(Cidr { address, bits })
}

fn contains_ip(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    let network = cidr(args)?;
    let address = match args {
        [_, Value::String(text)] => parse_ip(text)?.0,
        [_, rest @ ..] => ip(rest)?,
        _ => return Err(Fault::NoSuchOverload),
    };
    Ok(Value::Bool(network.contains(address)))
}

fn contains_cidr(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    let network = cidr(args)?;
    let other = match args {
        [_, Value::String(text)] => parse_cidr(text)?,
        [_, rest @ ..] => cidr(rest)?,
        _ => return Err(Fault::NoSuchOverload),
    };
    Ok(Value::Bool(network.bits <= other.bits && network.contains(other.address)))
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
        && address != IpAddr::V4(Ipv4Addr::BROADCAST)
}
