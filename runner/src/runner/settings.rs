//! What a runner is told through its environment.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::environment::{Environment, InvalidSetting, address, groups, listen, ratio};
use super::{Secret, Token};
use crate::cluster::Upkeep;
use crate::entity::{self, Concurrency};
use crate::lease::{Name, Timing};
use crate::shard::{GroupName, Instance, Member, ShardMap};
use crate::store::{Retention, postgres};
use crate::trace::Endpoint;
use crate::transport::Address;
use crate::workflow;

/// Where what must last is kept.
#[derive(Debug, Clone)]
pub enum Database {
    /// At that URL, which may change.
    Postgres(Secret),
    /// In this folder.
    Sqlite(PathBuf),
}

/// Who is let in at the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayAuth {
    /// Everybody who reaches it.
    None,
    /// Those whom Kubernetes knows, as far as it lets them.
    Kubernetes,
}

/// What a runner is told through its environment. `docs/configuration.md` has the variables.
#[derive(Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Where what must last is kept.
    pub database: Database,
    /// The name of its lock: that of the pod.
    pub name: Name,
    /// The UID of its pod.
    pub pod: Option<String>,
    /// The name of the Cluster, if it runs in Kubernetes.
    pub cluster: Option<String>,
    /// The namespace of the Cluster, if it is not that of the service account or kubeconfig.
    pub namespace: Option<String>,
    /// The UID of the Cluster.
    pub cluster_uid: Option<String>,
    /// The UID of a Cluster that is gone, whose database this one takes over.
    pub adopts: Option<String>,
    /// Where it listens for peers.
    pub listen: String,
    /// Where peers reach it, if that is somewhere else.
    pub address: Option<Address>,
    /// Where it listens for operators and probes, if it does.
    pub admin: Option<String>,
    /// Where it listens for users, if it does.
    pub gateway: Option<String>,
    /// Who is let in there.
    pub gateway_auth: GatewayAuth,
    /// What peers and the operator prove themselves with.
    pub token: Arc<Token>,
    /// Which hosts declared handlers may call, as patterns.
    pub egress: Vec<String>,
    /// Whether they may call this machine: for development.
    pub egress_loopback: bool,
    /// Where traces go, if anywhere.
    pub otlp: Option<Endpoint>,
    /// Which part of the traces that begin here goes there.
    pub otlp_ratio: f64,
    /// The rollout that it belongs to, if it is not the release.
    pub version: Option<String>,
    /// How much it carries compared to the others.
    pub weight: u16,
    /// The groups that it serves, with the number of shards that each gets if it is new.
    pub groups: Vec<(GroupName, u16)>,
    /// How often the lock is renewed, and when silence is death.
    pub timing: Timing,
    /// How long it may take to hand everything over.
    pub drain: Duration,
    /// How it runs entities.
    pub entities: entity::Options,
    /// How many entries the history of an execution may have.
    pub longest_history: u32,
    /// When what has ended is deleted.
    pub upkeep: Upkeep,
    /// The most connections to PostgreSQL for reads.
    pub database_connections: u32,
    /// The most transactions of users at once, each with a connection of its own.
    pub database_transactions: u32,
    /// Whether writes are refused while PostgreSQL does not replicate synchronously.
    pub require_synchronous_replication: bool,
    /// How long a user's transaction may be idle.
    pub transaction_idle: Duration,
    /// How long a user's transaction may take.
    pub transaction_timeout: Duration,
}

impl Settings {
    /// Reads them from variables.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the one that cannot be used.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidSetting> {
        let env = Environment(lookup);
        let database = match env.secret("CLEAT_DATABASE_URL", "CLEAT_DATABASE_URL_FILE")? {
            Some(url) if is_postgres(&url.current()) => Database::Postgres(url),
            Some(url) => match url.current().strip_prefix("sqlite:") {
                Some(folder) => Database::Sqlite(folder.into()),
                None => {
                    return Err(InvalidSetting::Value {
                        variable: "CLEAT_DATABASE_URL",
                        // It may have a password in it.
                        value: "…".to_owned(),
                        why: "it begins with postgres://, or is sqlite: and a folder".to_owned(),
                    });
                }
            },
            None => {
                Database::Sqlite(env.text("CLEAT_DATA_DIR").unwrap_or_else(|| "cleat-data".to_owned()).into())
            }
        };
        let cluster = env.read("CLEAT_CLUSTER", cluster_name)?;
        let usual_auth = if cluster.is_some() { GatewayAuth::Kubernetes } else { GatewayAuth::None };
        let gateway_auth = env.read("CLEAT_GATEWAY_AUTH", gateway_auth)?.unwrap_or(usual_auth);
        if gateway_auth == GatewayAuth::Kubernetes && cluster.is_none() {
            return Err(InvalidSetting::Alone("CLEAT_GATEWAY_AUTH", "CLEAT_CLUSTER"));
        }
        // Without a token nobody else is let in.
        let token = env.secret("CLEAT_PEER_TOKEN", "CLEAT_PEER_TOKEN_FILE")?;
        let token = Arc::new(token.map_or_else(Token::random, Token::new));
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
        let usual_store = postgres::Options::new("", Instance::new(""));
        let address = env.read("CLEAT_ADDRESS", address)?;
        let listens = |variable| env.text(variable).map(|text: String| listen(text, address.as_ref()));
        Ok(Self {
            database,
            name,
            pod: env.text("CLEAT_POD_UID"),
            cluster,
            namespace: env.text("CLEAT_NAMESPACE"),
            cluster_uid: env.text("CLEAT_CLUSTER_UID"),
            adopts: env.text("CLEAT_ADOPT_DATABASE"),
            listen: listens("CLEAT_LISTEN").unwrap_or_else(|| "127.0.0.1:0".to_owned()),
            admin: listens("CLEAT_ADMIN_LISTEN"),
            gateway: listens("CLEAT_GATEWAY_LISTEN"),
            address,
            gateway_auth,
            token,
            egress_loopback: env.read("CLEAT_EGRESS_LOOPBACK", loopback)?.unwrap_or(false),
            egress: env.list("CLEAT_EGRESS_ALLOW").unwrap_or_else(|| vec!["*".to_owned()]),
            otlp: env.read("CLEAT_OTLP_ENDPOINT", Endpoint::from_str)?,
            otlp_ratio: env.read("CLEAT_OTLP_RATIO", ratio)?.unwrap_or(1.0),
            version: env.text("CLEAT_VERSION"),
            weight: env.number("CLEAT_WEIGHT", Member::DEFAULT_WEIGHT)?,
            groups: groups.unwrap_or_else(|| vec![(GroupName::default(), shards)]),
            timing,
            drain: env.duration("CLEAT_DRAIN_TIMEOUT", Duration::from_secs(30))?,
            entities: env.entities()?,
            longest_history: env
                .number("CLEAT_WORKFLOW_LONGEST_HISTORY", workflow::Options::default().longest_history)?,
            upkeep: Upkeep { retention: env.retention()?, ..Upkeep::default() },
            database_connections: env.connections("CLEAT_DATABASE_CONNECTIONS", usual_store.connections)?,
            database_transactions: env
                .connections("CLEAT_DATABASE_TRANSACTIONS", usual_store.transactions)?,
            require_synchronous_replication: env
                .read("CLEAT_DATABASE_REQUIRE_SYNCHRONOUS", boolean)?
                .unwrap_or(usual_store.require_synchronous_replication),
            transaction_idle: env.duration("CLEAT_TRANSACTION_IDLE_TIMEOUT", usual_store.transaction_idle)?,
            transaction_timeout: env
                .duration("CLEAT_TRANSACTION_TIMEOUT", usual_store.transaction_timeout)?,
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
        if let Some(most) = self.read("CLEAT_ENTITY_MAX_ATTEMPTS", usize::from_str)? {
            retry.attempts = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MAX);
        }
        Ok(entity::Options {
            idle: self.duration("CLEAT_ENTITY_IDLE_TIMEOUT", usual.idle)?,
            mailbox: self.number("CLEAT_ENTITY_MAILBOX", usual.mailbox)?,
            concurrency: concurrency.unwrap_or(usual.concurrency),
            registration: self.duration("CLEAT_ENTITY_REGISTRATION_TIMEOUT", usual.registration)?,
            handler_timeout: self.duration("CLEAT_ENTITY_HANDLER_TIMEOUT", usual.handler_timeout)?,
            retry,
            ..usual
        })
    }

    fn connections(&self, variable: &'static str, default: u32) -> Result<u32, InvalidSetting> {
        let number = self.read(variable, |text| {
            text.parse::<u32>().ok().filter(|number| *number > 0).ok_or("it is a number from 1 on")
        });
        Ok(number?.unwrap_or(default))
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

/// Whether a URL is that of a PostgreSQL database.
pub(super) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// The name of a Cluster goes into labels and into the names of what belongs to it.
fn cluster_name(text: &str) -> Result<String, &'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = text.len() <= 63
        && text.bytes().all(|b| plain(b) || b == b'-')
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain);
    if label { Ok(text.to_owned()) } else { Err("it is the name of a Cluster: a DNS label") }
}

fn boolean(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "use true or false")
}

fn loopback(text: &str) -> Result<bool, &'static str> {
    match text {
        "allow" => Ok(true),
        "refuse" => Ok(false),
        _ => Err("it is allow or refuse"),
    }
}

fn gateway_auth(text: &str) -> Result<GatewayAuth, &'static str> {
    match text {
        "None" => Ok(GatewayAuth::None),
        "Kubernetes" => Ok(GatewayAuth::Kubernetes),
        _ => Err("it is None or Kubernetes"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, InvalidSetting> {
        let variables: HashMap<_, _> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::read(|name| variables.get(name).cloned())
    }

    fn url(settings: &Settings) -> String {
        match &settings.database {
            Database::Postgres(url) => url.current().to_string(),
            Database::Sqlite(_) => "SQLite".to_owned(),
        }
    }

    fn error(variables: &[(&str, &str)]) -> String {
        read(variables).unwrap_err().to_string()
    }

    #[test]
    fn without_anything_it_is_a_single_process_on_sqlite() {
        let settings = read(&[]).unwrap();
        assert!(matches!(&settings.database, Database::Sqlite(folder) if folder.as_os_str() == "cleat-data"));
        assert!(settings.cluster.is_none() && settings.admin.is_none() && settings.gateway.is_none());
        assert_eq!(settings.gateway_auth, GatewayAuth::None);
        assert_eq!(settings.egress, ["*"]);
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
            ("CLEAT_DATABASE_REQUIRE_SYNCHRONOUS", "true"),
        ])
        .unwrap();
        assert_eq!(url(&settings), "postgres://u:p@h/d");
        let premium = GroupName::new("premium").unwrap();
        assert_eq!(settings.groups, [(GroupName::default(), 100), (premium, 64)]);
        assert!(settings.require_synchronous_replication);
        assert_eq!(settings.timing.interval(), Duration::from_millis(1500));
        assert_eq!(settings.entities.concurrency, Concurrency::Unbounded);
        assert_eq!(settings.upkeep.retention.completed, Duration::from_secs(24 * 3600));
        assert_eq!(settings.address.unwrap().as_str(), "10.0.0.1:7400");
    }

    #[test]
    fn the_address_of_a_pod_may_be_one_of_ipv6() {
        let listens = [("CLEAT_LISTEN", "0.0.0.0:7400"), ("CLEAT_ADMIN_LISTEN", "127.0.0.1:7401")];
        let with = |address| read(&[&listens[..], &[("CLEAT_ADDRESS", address)]].concat()).unwrap();
        for address in ["fd00::1:7400", "[fd00::1]:7400"] {
            let settings = with(address);
            assert_eq!(settings.address.unwrap().as_str(), "[fd00::1]:7400");
            assert_eq!(
                (settings.listen.as_str(), settings.admin.as_deref()),
                ("[::]:7400", Some("127.0.0.1:7401"))
            );
        }
        assert_eq!(with("10.0.0.1:7400").listen, "0.0.0.0:7400");
        assert!(error(&[("CLEAT_ADDRESS", "fd00::1")]).starts_with("CLEAT_ADDRESS"));
        assert!(error(&[("CLEAT_OTLP_RATIO", "2")]).contains("from 0 to 1"));
    }

    #[test]
    fn in_kubernetes_it_is_told_so() {
        let settings = read(&[
            ("CLEAT_CLUSTER", "main"),
            ("CLEAT_NAMESPACE", "shop"),
            ("CLEAT_CLUSTER_UID", "c-1"),
            ("CLEAT_POD_UID", "p-1"),
            ("CLEAT_ADMIN_LISTEN", "0.0.0.0:7401"),
            ("CLEAT_GATEWAY_LISTEN", ""),
            ("CLEAT_EGRESS_ALLOW", "*.example.com, api.shop"),
        ])
        .unwrap();
        assert_eq!(settings.cluster.as_deref(), Some("main"));
        assert_eq!(settings.gateway_auth, GatewayAuth::Kubernetes);
        assert_eq!((settings.admin.as_deref(), settings.gateway.as_deref()), (Some("0.0.0.0:7401"), None));
        assert_eq!(settings.egress, ["*.example.com", "api.shop"]);
        let open = read(&[("CLEAT_CLUSTER", "main"), ("CLEAT_GATEWAY_AUTH", "None")]).unwrap();
        assert_eq!(open.gateway_auth, GatewayAuth::None);
    }

    /// Every variable that is read here is in the documentation, and the other way round.
    #[test]
    fn the_documentation_has_every_variable() {
        let variables = |text: &str| -> BTreeSet<String> {
            let known = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            text.match_indices("CLEAT_")
                .map(|(at, _)| text[at..].chars().take_while(|c| known(*c)).collect())
                .collect()
        };
        let sources = [include_str!("settings.rs"), include_str!("../runner.rs")]
            .map(|source| source.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
        let read = variables(&sources.concat());
        let documented = variables(include_str!("../../../docs/configuration.md"));
        assert_eq!(read.difference(&documented).collect::<Vec<_>>(), Vec::<&String>::new(), "undocumented");
        assert_eq!(documented.difference(&read).collect::<Vec<_>>(), Vec::<&String>::new(), "not read");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        assert_eq!(
            error(&[("CLEAT_DRAIN_TIMEOUT", "30")]),
            "CLEAT_DRAIN_TIMEOUT=\"30\" cannot be used: \"30\" is not a duration: write a number with ms, s, m or h, such as 500ms, 2m or 24h"
        );
        assert!(error(&[("CLEAT_WEIGHT", "many")]).starts_with("CLEAT_WEIGHT=\"many\""));
        assert!(error(&[("CLEAT_ENTITY_MAILBOX", "0")]).starts_with("CLEAT_ENTITY_MAILBOX"));
        assert!(error(&[("CLEAT_CLUSTER", "My_Cluster")]).starts_with("CLEAT_CLUSTER=\"My_Cluster\""));
        let alone = error(&[("CLEAT_GATEWAY_AUTH", "Kubernetes")]);
        assert_eq!(alone, "CLEAT_GATEWAY_AUTH is set, and CLEAT_CLUSTER is not: set both");
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
        assert_eq!(url(&settings), "postgres://u:p@h/d");
    }
}
