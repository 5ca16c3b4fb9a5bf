//! Values of library types.

use std::fmt;

use crate::library::net::{Cidr, Ip};
use crate::library::quantity::Quantity;
use crate::library::semver::Semver;
use crate::library::url::Url;

/// A value that only the functions of its library look into.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(private_interfaces, reason = "what is inside is for the library alone")]
#[expect(missing_docs, reason = "the names are those of the libraries")]
pub enum Opaque {
    Ip(Ip),
    Cidr(Cidr),
    Url(Url),
    Quantity(Quantity),
    Semver(Semver),
    /// A named format of strings.
    Format(&'static str),
}

impl Opaque {
    pub(crate) const fn type_name(&self) -> &'static str {
        match self {
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Cidr(cidr) => cidr.fmt(f),
            Self::Url(url) => url.fmt(f),
            Self::Quantity(quantity) => quantity.fmt(f),
            Self::Semver(version) => version.fmt(f),
            Self::Format(name) => f.write_str(name),
        }
    }
}
