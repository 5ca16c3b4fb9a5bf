//! Variables, looked up and read.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use cleat_crds::InvalidDuration;

use super::Secret;
use crate::shard::GroupName;
use crate::transport::{Address, InvalidAddress};

/// A variable of the environment that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSetting {
    /// Its value is not what it should be.
    #[error("{variable}={value:?} cannot be used: {why}")]
    Value {
        /// Which variable.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// It names a file that cannot be read.
    #[error("{variable} names the file {path}, which cannot be read")]
    File {
        /// Which variable.
        variable: &'static str,
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A name that is always there cannot be one.
    #[error(transparent)]
    Name(#[from] crate::lease::InvalidName),
    /// A variable needs another one.
    #[error("{0} is set, and {1} is not: set both")]
    Alone(&'static str, &'static str),
    /// Two variables say the same thing.
    #[error("{0} and {1} are both set: use one of them")]
    Both(&'static str, &'static str),
}

/// Looks variables up.
pub(super) struct Environment<F>(pub(super) F);

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    /// What a variable says; nothing if it is empty.
    pub(super) fn text(&self, variable: &'static str) -> Option<String> {
        (self.0)(variable).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub(super) fn read<T, E: Display>(
        &self,
        variable: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, InvalidSetting> {
        let Some(value) = self.text(variable) else { return Ok(None) };
        match read(&value) {
            Ok(read) => Ok(Some(read)),
            Err(why) => Err(InvalidSetting::Value { variable, why: why.to_string(), value }),
        }
    }

    pub(super) fn number<T: FromStr<Err: Display>>(
        &self,
        variable: &'static str,
        default: T,
    ) -> Result<T, InvalidSetting> {
        Ok(self.read(variable, T::from_str)?.unwrap_or(default))
    }

    pub(super) fn duration(
        &self,
        variable: &'static str,
        default: Duration,
    ) -> Result<Duration, InvalidSetting> {
        Ok(self.read(variable, duration)?.unwrap_or(default))
    }

    /// What a variable says, or a file that another one names: so secrets can be mounted.
    pub(super) fn secret(
        &self,
        variable: &'static str,
        file: &'static str,
    ) -> Result<Option<Secret>, InvalidSetting> {
        match (self.text(variable), self.text(file)) {
            (Some(_), Some(_)) => Err(InvalidSetting::Both(variable, file)),
            (Some(text), None) => Ok(Some(Secret::fixed(&text))),
            (None, None) => Ok(None),
            (None, Some(path)) => match Secret::file(&path) {
                Ok(secret) => Ok(Some(secret)),
                Err(source) => Err(InvalidSetting::File { variable: file, path, source }),
            },
        }
    }

    /// What a variable lists, separated by commas.
    pub(super) fn list(&self, variable: &'static str) -> Option<Vec<String>> {
        let text = self.text(variable)?;
        Some(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
    }
}

/// `default,premium=64`.
pub(super) fn groups(text: &str, shards: u16) -> Result<Vec<(GroupName, u16)>, String> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (name, count) = match item.split_once('=') {
            Some((name, count)) => {
                let count = count.trim().parse::<u16>().ok().filter(|count| *count > 0);
                (name.trim(), count.ok_or("after = comes a number of shards from 1 to 65535")?)
            }
            None => (item, shards),
        };
        let group = GroupName::new(name).map_err(|error| error.to_string())?;
        if !seen.insert(group.clone()) {
            return Err(format!("the group {group} is named twice"));
        }
        groups.push((group, count));
    }
    Ok(groups)
}

/// `500ms`, `5s`, `2m`, `24h`, `1h30m`: as in custom resources.
pub(crate) fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    text.parse::<cleat_crds::Duration>().map(cleat_crds::Duration::get)
}

/// A host and a port. The address of a pod may be one of IPv6, which comes without the brackets that belong around it.
pub(super) fn address(text: &str) -> Result<Address, InvalidAddress> {
    match text.rsplit_once(':') {
        Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() => Address::new(&format!("[{host}]:{port}")),
        _ => Address::new(text),
    }
}

/// Where to listen: on all addresses of IPv4 means on all addresses, if peers reach this runner by IPv6.
pub(super) fn listen(text: String, address: Option<&Address>) -> String {
    match (text.strip_prefix("0.0.0.0:"), address) {
        (Some(port), Some(address)) if address.as_str().starts_with('[') => format!("[::]:{port}"),
        _ => text,
    }
}

/// A part of all, from 0 to 1.
pub(super) fn ratio(text: &str) -> Result<f64, &'static str> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or("it is a number from 0 to 1")
}
