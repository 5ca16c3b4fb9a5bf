//! What a runner is told through its environment.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::cluster::Upkeep;
use crate::entity::{self, Concurrency};
use crate::lease::{Name, Timing};
use crate::shard::{GroupName, Member, ShardMap};
use crate::store::Retention;
use crate::transport::Address;

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
    /// Two variables say the same thing.
    #[error("{0} and {1} are both set: use one of them")]
    Both(&'static str, &'static str),
}

/// Where what must last is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Database {
    Postgres(String),
    /// In this folder.
    Sqlite(PathBuf),
}

/// What a runner is told through its environment.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) database: Database,
    pub(super) name: Name,
    pub(super) pod: Option<String>,
    /// Where it listens for peers.
    pub(super) listen: String,
    /// Where peers reach it, if that is somewhere else.
    pub(super) address: Option<Address>,
    pub(super) cluster: Option<String>,
    pub(super) token: Option<String>,
    pub(super) version: Option<String>,
    pub(super) weight: u16,
    /// The groups that it serves, with the number of shards that each gets if it is new.
    pub(super) groups: Vec<(GroupName, u16)>,
    pub(super) timing: Timing,
    pub(super) drain: Duration,
    pub(super) entities: entity::Options,
    pub(super) upkeep: Upkeep,
}

/// Looks variables up.
struct Environment<F>(F);

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    /// What a variable says; nothing if it is empty.
    fn text(&self, variable: &'static str) -> Option<String> {
        (self.0)(variable).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn read<T, E: Display>(
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

    fn number<T: FromStr<Err: Display>>(
        &self,
        variable: &'static str,
        default: T,
    ) -> Result<T, InvalidSetting> {
        Ok(self.read(variable, T::from_str)?.unwrap_or(default))
    }

    fn duration(&self, variable: &'static str, default: Duration) -> Result<Duration, InvalidSetting> {
        Ok(self.read(variable, duration)?.unwrap_or(default))
    }

    /// What a variable says, or a file that another one names: so secrets can be mounted.
    fn secret(&self, variable: &'static str, file: &'static str) -> Result<Option<String>, InvalidSetting> {
        match (self.text(variable), self.text(file)) {
            (Some(_), Some(_)) => Err(InvalidSetting::Both(variable, file)),
            (Some(text), None) => Ok(Some(text)),
            (None, None) => Ok(None),
            (None, Some(path)) => match std::fs::read_to_string(&path) {
                Ok(text) if text.trim().is_empty() => Err(InvalidSetting::Value {
                    variable: file,
                    value: path,
                    why: "the file is empty".to_owned(),
                }),
                Ok(text) => Ok(Some(text.trim().to_owned())),
                Err(source) => Err(InvalidSetting::File { variable: file, path, source }),
            },
        }
    }
}

impl Settings {
    /// Reads them from variables.
    pub(super) fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidSetting> {
        let env = Environment(lookup);
        let database = match env.secret("CLEAT_DATABASE_URL", "CLEAT_DATABASE_URL_FILE")? {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Database::Postgres(url)
            }
            Some(_) => {
                return Err(InvalidSetting::Value {
                    variable: "CLEAT_DATABASE_URL",
                    // It may have a password in it.
                    value: "…".to_owned(),
                    why: "it begins with postgres://; without it SQLite is used".to_owned(),
                });
            }
            None => {
                Database::Sqlite(env.text("CLEAT_DATA_DIR").unwrap_or_else(|| "cleat-data".to_owned()).into())
            }
        };
        // A host may have any name; only what was meant for us is an error.
        let host = env.text("HOSTNAME").and_then(|host| Name::new(&host.to_ascii_lowercase()).ok());
        let name = match env.read("CLEAT_NAME", Name::new)?.or(host) {
            Some(name) => name,
            None => Name::new("runner")?,
        };
        let shards = env.number("CLEAT_SHARDS", ShardMap::DEFAULT_SHARDS)?;
        let groups = env.read("CLEAT_SHARD_GROUPS", |text| groups(text, shards))?;
        let usual = Timing::default();
        let lease = env.duration("CLEAT_LEASE_DURATION", usual.duration())?;
        let renewal = env.duration("CLEAT_LEASE_RENEW_EVERY", usual.interval())?;
        let timing = Timing::new(lease, renewal).map_err(|error| InvalidSetting::Value {
            variable: "CLEAT_LEASE_RENEW_EVERY",
            value: format!("{renewal:?}"),
            why: error.to_string(),
        })?;
        Ok(Self {
            database,
            name,
            pod: env.text("CLEAT_POD_UID"),
            listen: env.text("CLEAT_LISTEN").unwrap_or_else(|| "127.0.0.1:0".to_owned()),
            address: env.read("CLEAT_ADDRESS", Address::new)?,
            cluster: env.text("CLEAT_CLUSTER_UID"),
            token: env.secret("CLEAT_PEER_TOKEN", "CLEAT_PEER_TOKEN_FILE")?,
            version: env.text("CLEAT_VERSION"),
            weight: env.number("CLEAT_WEIGHT", Member::DEFAULT_WEIGHT)?,
            groups: groups.unwrap_or_else(|| vec![(GroupName::default(), shards)]),
            timing,
            drain: env.duration("CLEAT_DRAIN_TIMEOUT", Duration::from_secs(30))?,
            entities: env.entities()?,
            upkeep: Upkeep { retention: env.retention()?, ..Upkeep::default() },
        })
    }
}

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    fn entities(&self) -> Result<entity::Options, InvalidSetting> {
        let usual = entity::Options::default();
        let concurrency = self.read("CLEAT_ENTITY_CONCURRENCY", usize::from_str)?;
        let concurrency = concurrency
            .map(|most| NonZeroUsize::new(most).map_or(Concurrency::Unbounded, Concurrency::Limited));
        let mut retry = usual.retry;
        retry.attempts = self.number("CLEAT_ENTITY_MAX_ATTEMPTS", retry.attempts)?;
        Ok(entity::Options {
            idle: self.duration("CLEAT_ENTITY_IDLE_TIMEOUT", usual.idle)?,
            mailbox: self.number("CLEAT_ENTITY_MAILBOX", usual.mailbox)?,
            concurrency: concurrency.unwrap_or(usual.concurrency),
            registration: self.duration("CLEAT_ENTITY_REGISTRATION_TIMEOUT", usual.registration)?,
            retry,
            ..usual
        })
    }

    fn retention(&self) -> Result<Retention, InvalidSetting> {
        let usual = Retention::default();
        Ok(Retention {
            completed: self.duration("CLEAT_RETENTION_COMPLETED", usual.completed)?,
            failed: self.duration("CLEAT_RETENTION_FAILED", usual.failed)?,
            dead_letters: self.duration("CLEAT_RETENTION_DEAD_LETTERS", usual.dead_letters)?,
        })
    }
}

/// `default,premium=64`.
fn groups(text: &str, shards: u16) -> Result<Vec<(GroupName, u16)>, String> {
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

/// `500ms`, `5s`, `2m`, `24h`.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "a duration is a number with ms, s, m or h, such as 500ms or 24h";
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or(WRONG)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| WRONG)?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs).ok_or("that is too long");
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        _ => Err(WRONG),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, InvalidSetting> {
        let variables: HashMap<_, _> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::read(|name| variables.get(name).cloned())
    }

    fn error(variables: &[(&str, &str)]) -> String {
        read(variables).unwrap_err().to_string()
    }

    #[test]
    fn without_anything_it_is_a_single_process_on_sqlite() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.database, Database::Sqlite("cleat-data".into()));
        assert_eq!(settings.groups, [(GroupName::default(), 300)]);
        assert_eq!(settings.timing, Timing::default());
        assert_eq!(settings.drain, Duration::from_secs(30));
    }

    #[test]
    fn what_is_set_is_taken() {
        let settings = read(&[
            ("CLEAT_DATABASE_URL", "postgres://u:p@h/d"),
            ("CLEAT_SHARD_GROUPS", "default, premium=64"),
            ("CLEAT_SHARDS", "100"),
            ("CLEAT_LEASE_DURATION", "6s"),
            ("CLEAT_LEASE_RENEW_EVERY", "1500ms"),
            ("CLEAT_ENTITY_CONCURRENCY", "0"),
            ("CLEAT_RETENTION_COMPLETED", "24h"),
            ("CLEAT_ADDRESS", "10.0.0.1:7400"),
        ])
        .unwrap();
        assert_eq!(settings.database, Database::Postgres("postgres://u:p@h/d".to_owned()));
        let premium = GroupName::new("premium").unwrap();
        assert_eq!(settings.groups, [(GroupName::default(), 100), (premium, 64)]);
        assert_eq!(settings.timing.interval(), Duration::from_millis(1500));
        assert_eq!(settings.entities.concurrency, Concurrency::Unbounded);
        assert_eq!(settings.upkeep.retention.completed, Duration::from_secs(24 * 3600));
        assert_eq!(settings.address.unwrap().as_str(), "10.0.0.1:7400");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        assert_eq!(
            error(&[("CLEAT_DRAIN_TIMEOUT", "30")]),
            "CLEAT_DRAIN_TIMEOUT=\"30\" cannot be used: a duration is a number with ms, s, m or h, such as 500ms or 24h"
        );
        assert!(error(&[("CLEAT_WEIGHT", "many")]).starts_with("CLEAT_WEIGHT=\"many\""));
        assert!(error(&[("CLEAT_ENTITY_MAILBOX", "0")]).starts_with("CLEAT_ENTITY_MAILBOX"));
        assert!(error(&[("CLEAT_SHARD_GROUPS", "a,a")]).contains("twice"));
        assert!(error(&[("CLEAT_LEASE_RENEW_EVERY", "9s")]).contains("every third"));
        let both = error(&[("CLEAT_PEER_TOKEN", "a"), ("CLEAT_PEER_TOKEN_FILE", "/b")]);
        assert_eq!(both, "CLEAT_PEER_TOKEN and CLEAT_PEER_TOKEN_FILE are both set: use one of them");
        assert!(error(&[("CLEAT_DATABASE_URL_FILE", "/nowhere/url")]).contains("/nowhere/url"));
    }

    #[test]
    fn no_password_is_told_to_anybody() {
        assert!(!error(&[("CLEAT_DATABASE_URL", "mysql://u:secret@h/d")]).contains("secret"));
    }

    #[test]
    fn a_secret_comes_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "postgres://u:p@h/d\n").unwrap();
        let settings = read(&[("CLEAT_DATABASE_URL_FILE", file.path().to_str().unwrap())]).unwrap();
        assert_eq!(settings.database, Database::Postgres("postgres://u:p@h/d".to_owned()));
    }
}
