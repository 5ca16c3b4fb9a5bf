//! Which platform is meant, and how it is reached.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use cleat_crds::Cluster;
use cleat_runner::lease::kubernetes::{Record, is_earlier, label};
use cleat_runner::lease::{Runner, RunnerRecord, ShardRecord};
use cleat_runner::shard::State;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::output::waiting;

/// Where `cleat dev` leaves its kubeconfig, seen from where it was started.
pub const DEV_KUBECONFIG: &str = ".cleat/kubeconfig";
/// The port of the gateway in a pod.
const GATEWAY_PORT: u16 = 8080;

/// Which platform is meant.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// The kubeconfig to use. Otherwise KUBECONFIG, then that of `cleat dev` in this folder, then the usual one.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, global = true)]
    context: Option<String>,
    /// The namespace; that of the context if it is not said.
    #[arg(long, short = 'n', global = true)]
    namespace: Option<String>,
    /// The Cluster that is meant.
    #[arg(long, global = true, default_value = "default", env = "CLEAT_CLUSTER")]
    pub cluster: String,
    /// The address of a gateway, instead of looking for one: host:port.
    #[arg(long, global = true, env = "CLEAT_GATEWAY", value_name = "HOST:PORT")]
    gateway: Option<String>,
    /// The token to show to the gateway; that of the kubeconfig if it is not said.
    #[arg(long, global = true, env = "CLEAT_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// A platform that answers.
pub struct Platform {
    /// Its API server.
    pub client: Client,
    /// The namespace that is meant.
    pub namespace: String,
    /// The Cluster that is meant.
    pub cluster: String,
    token: Option<String>,
}

/// Bytes to and from a gateway.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A way to a gateway.
pub struct Connection {
    /// The bytes.
    pub stream: Box<dyn Stream>,
    /// What it is called in a request.
    pub host: String,
    /// What proves who asks.
    pub token: Option<String>,
}

impl Target {
    /// The gateway at this address.
    pub fn at(gateway: String) -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespace: None,
            cluster: "default".to_owned(),
            gateway: Some(gateway),
            token: None,
        }
    }

    /// Finds the API server. Nothing is asked of it yet.
    pub async fn platform(&self) -> Result<Platform> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match self.file() {
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(&file)
                    .with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .with_context(|| format!("the kubeconfig {} cannot be used", file.display()))?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await.context(
                "there is neither a `cleat dev` in this folder nor a kubeconfig: start one with `cleat dev`, or name one with --kubeconfig",
            )?,
        };
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        let namespace = config.default_namespace.clone();
        let token = self.token.clone().or_else(|| bearer(&config));
        let client = Client::try_from(config).context("cannot talk to the API server")?;
        Ok(Platform { client, namespace, cluster: self.cluster.clone(), token })
    }

    fn file(&self) -> Option<PathBuf> {
        let named = self.kubeconfig.clone();
        let dev = || {
            let nothing_else = std::env::var_os("KUBECONFIG").is_none() && self.context.is_none();
            (nothing_else && Path::new(DEV_KUBECONFIG).exists()).then(|| DEV_KUBECONFIG.into())
        };
        named.or_else(dev)
    }

    /// A way to a gateway: the one that was named, or that of a runner that is ready.
    pub async fn connect(&self) -> Result<Connection> {
        if let Some(address) = &self.gateway {
            let stream = TcpStream::connect(address)
                .await
                .with_context(|| format!("nobody answers at the gateway {address}"))?;
            return Ok(Connection {
                stream: Box::new(stream),
                host: address.clone(),
                token: self.token.clone(),
            });
        }
        self.platform().await?.connect().await
    }
}

/// The token that a kubeconfig has, if that is how its user is known.
fn bearer(config: &Config) -> Option<String> {
    // Secrets show themselves only when they are written.
    let user = serde_json::to_value(&config.auth_info).ok()?;
    let field = |name: &str| user.get(name)?.as_str().map(ToOwned::to_owned);
    let file = || std::fs::read_to_string(field("tokenFile")?).ok().map(|text| text.trim().to_owned());
    field("token").or_else(file)
}

impl Platform {
    /// Objects of a kind in the namespace that is meant.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The locks of the Cluster's runners, each with its Lease. Those of an earlier Cluster of this name may still be there; they
    /// are left out.
    pub async fn runners(&self) -> Result<Vec<(Lease, RunnerRecord)>> {
        let mut leases = self.leases("runner").await?;
        // Whoever may not see the Cluster sees all of them.
        if let Ok(Some(cluster)) = self.api::<Cluster>().get_metadata_opt(&self.cluster).await {
            let uid = cluster.metadata.uid.unwrap_or_default();
            leases.retain(|lease| !is_earlier(lease, &uid));
        }
        Ok(leases
            .into_iter()
            .filter_map(|lease| match read(&lease)? {
                Record::Runner(record) => Some((lease, record)),
                Record::Shard(_) => None,
            })
            .collect())
    }

    /// The Cluster's shards, as their Leases have them.
    pub async fn shards(&self) -> Result<Vec<ShardRecord>> {
        let leases = self.leases("shard").await?;
        Ok(leases
            .iter()
            .filter_map(|lease| match read(lease)? {
                Record::Shard(record) => Some(record),
                Record::Runner(_) => None,
            })
            .collect())
    }

    async fn leases(&self, of: &str) -> Result<Vec<Lease>> {
        let labels = format!("{}={},{}={of}", label::CLUSTER, self.cluster, label::LEASE);
        let (api, labelled) = (self.api::<Lease>(), ListParams::default().labels(&labels));
        let leases = waiting("asking the API server", api.list(&labelled)).await;
        Ok(leases.map_err(|error| self.unreachable(error))?.items)
    }

    /// What it means that the API server did not answer as hoped.
    pub fn unreachable(&self, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) => {
                anyhow!("the API server refuses: {}", status.message)
            }
            error => anyhow::Error::new(error).context(
                "the API server cannot be reached: is `cleat dev` running, or is the kubeconfig out of date?",
            ),
        }
    }

    async fn connect(&self) -> Result<Connection> {
        let known = self.runners().await?;
        let mut ready: Vec<(&str, &Runner)> =
            known.iter().filter_map(|(_, record)| Some((record.name.as_str(), serving(record)?))).collect();
        // Whichever; but the same one for the same question is easier to follow in logs.
        ready.sort_by_key(|(name, _)| *name);
        let Some((first, _)) = ready.first() else {
            bail!(
                "no runner of Cluster {} in namespace {} is ready ({} known): `kubectl get ccl` and `cleat doctor` say why",
                self.cluster,
                self.namespace,
                known.len()
            );
        };
        let mut failures = Vec::new();
        for (name, runner) in &ready {
            match self.reach(name, runner).await {
                Ok(stream) => {
                    let host = runner.gateway.clone().unwrap_or_else(|| "gateway".to_owned());
                    return Ok(Connection { stream, host, token: self.token.clone() });
                }
                Err(error) => failures.push(error),
            }
        }
        let why = failures.into_iter().next().unwrap_or_else(|| anyhow!("nobody answers"));
        Err(why.context(format!(
            "no gateway of {} ready runners can be reached, {first} to begin with",
            ready.len(),
        )))
    }

    /// Runners on this machine are reached as they are, all others through the API server. A runner is called as its pod.
    async fn reach(&self, pod: &str, runner: &Runner) -> Result<Box<dyn Stream>> {
        let address = runner.gateway.as_deref().context("it has no gateway")?;
        if address.starts_with("127.") || address.starts_with("localhost:") || address.starts_with("[::1]:") {
            return Ok(Box::new(
                TcpStream::connect(address).await.with_context(|| format!("{address} does not answer"))?,
            ));
        }
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(GATEWAY_PORT);
        let (pods, ports) = (self.api::<Pod>(), [port]);
        let forwarding = waiting("opening a way to a runner", pods.portforward(pod, &ports));
        let mut forward = forwarding.await.with_context(|| {
            format!("port {port} of pod {pod} cannot be forwarded: may you create pods/portforward?")
        })?;
        let stream = forward.take_stream(port).context("the forwarded port has no stream")?;
        // It goes on for as long as the stream is used.
        tokio::spawn(async move { forward.join().await });
        Ok(Box::new(stream))
    }
}

/// What a Lease says. One that somebody has edited is left out, and said.
pub fn read(lease: &Lease) -> Option<Record> {
    Record::read(lease).inspect_err(|error| tracing::warn!(%error, "a Lease is left out")).ok()
}

/// Who holds the lock of a runner, if it serves.
pub fn serving(record: &RunnerRecord) -> Option<&Runner> {
    record.holder.as_ref().filter(|runner| runner.member.state == State::Ready)
}
