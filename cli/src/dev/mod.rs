//! `cleat dev`: a platform in one process.
//!
//! The embedded Kubernetes API, the operator and the runners are the real ones; only the node is small (see [`agent`]). What must
//! last is in one folder: objects in `api.db`, entities and executions in `cleat.db`.

mod agent;
mod apply;
mod demo;
mod front;
mod logs;
mod ready;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cleat_crds::Cluster;
use cleat_runner::lease::kubernetes::Access;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::logs::Logs;

/// Who applies what is applied here.
const MANAGER: &str = "cleat-dev";
/// The namespace of everything.
const NAMESPACE: &str = "default";
/// The Secret that has the database's URL.
const DATABASE: &str = "cleat-database";
/// How many shards a new platform has. Each is a Lease to claim at the start and to free at the end, and a few runners need no more.
const SHARDS: u32 = 32;
/// How long the first runner may take to serve.
const START: Duration = Duration::from_secs(60);

/// What `cleat dev` is told.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the data is kept.
    #[arg(long, value_name = "DIR", default_value = ".cleat")]
    data: PathBuf,
    /// A PostgreSQL database (postgres://…) instead of SQLite.
    #[arg(long, value_name = "URL", env = "CLEAT_DATABASE_URL", hide_env_values = true)]
    database: Option<String>,
    /// The port of the gateway on this machine; 0 takes a free one.
    #[arg(long, default_value_t = 8080, env = "CLEAT_DEV_PORT")]
    port: u16,
    /// The port of the Kubernetes API on this machine; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    api_port: u16,
    /// How many runners to start with; `kubectl scale ccl/default --replicas=N` changes it.
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// Run this program in each pod instead of the stock runner: one with entities and workflows of your own.
    #[arg(long, value_name = "PROGRAM")]
    runner: Option<PathBuf>,
    /// Apply the definitions in this folder (or file), and again whatever changes in it.
    #[arg(long, short = 'f', value_name = "DIR")]
    file: Option<PathBuf>,
    /// Show what it does: an order that reserves, charges and ships.
    #[arg(long)]
    demo: bool,
    /// End after the demo instead of waiting for Ctrl-C.
    #[arg(long, requires = "demo")]
    exit: bool,
}

impl Arguments {
    /// What would only be found out once everything runs.
    fn check(&self) -> Result<()> {
        if let Some(path) = self.file.as_deref().filter(|path| !path.exists()) {
            bail!("{} is not there: -f takes a folder with definitions, or a file", path.display());
        }
        let postgres = |url: &str| url.starts_with("postgres://") || url.starts_with("postgresql://");
        if self.database.as_deref().is_some_and(|url| !postgres(url)) {
            bail!("--database takes the URL of a PostgreSQL, which begins with postgres://");
        }
        Ok(())
    }
}

/// Runs until Ctrl-C, or until the demo has ended if that is all that is wanted.
pub async fn run(arguments: Arguments) -> Result<()> {
    let begun = std::time::Instant::now();
    arguments.check()?;
    let data = arguments.data.clone();
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make the folder {}", data.display()))?;
    let data = data.canonicalize().with_context(|| format!("cannot find the folder {}", data.display()))?;
    let _alone = lock(&data)?;
    let logs = Logs::new(data.join("logs"))?;
    logs.install();
    let platform = Platform::start(&arguments, &data, logs).await?;
    println!("cleat: ready after {:.1} s", begun.elapsed().as_secs_f64());
    println!("  Kubernetes API   export KUBECONFIG={}", data.join("kubeconfig").display());
    println!("  gateway          http://{}", platform.gateway);
    let shown = tokio::select! {
        shown = platform.work(&arguments, &data) => shown,
        asked = asked_to_stop() => asked.context("cannot wait for Ctrl-C"),
    };
    println!("cleat: stopping; the next start finds its data");
    platform.stop().await;
    shown
}

/// Comes back at Ctrl-C, and when the process is asked to end.
async fn asked_to_stop() -> std::io::Result<()> {
    let mut ended = signal(SignalKind::terminate())?;
    tokio::select! {
        asked = tokio::signal::ctrl_c() => asked,
        _ = ended.recv() => Ok(()),
    }
}

/// The user's own runner, if there is one.
fn program(arguments: &Arguments, data: &Path) -> Result<Option<agent::Program>> {
    let Some(path) = &arguments.runner else { return Ok(None) };
    let path = path.canonicalize().with_context(|| format!("there is no program {}", path.display()))?;
    let turn = arguments.database.is_none().then(Default::default);
    Ok(Some(agent::Program { path, kubeconfig: data.join("kubeconfig"), turn }))
}

/// Two processes must not use one folder.
fn lock(data: &Path) -> Result<std::fs::File> {
    let path = data.join("lock");
    let file = std::fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!(
                "another `cleat dev` uses {}: stop it, or choose another folder with --data",
                data.display()
            )
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error).context("cannot lock the folder"),
    }
}

/// Everything that runs.
struct Platform {
    client: Client,
    gateway: std::net::SocketAddr,
    server: cleat_apiserver::Handle,
    stop_front: CancellationToken,
    stop_node: CancellationToken,
    stop_operator: CancellationToken,
    node: JoinHandle<Result<()>>,
    operator: JoinHandle<Result<()>>,
}

impl Platform {
    async fn start(arguments: &Arguments, data: &Path, logs: Logs) -> Result<Self> {
        let program = program(arguments, data)?;
        let definitions = definitions();
        let backend =
            cleat_apiserver::store::Sqlite::open(&data.join("api.db")).await.context("cannot open api.db")?;
        let server = cleat_apiserver::start(cleat_apiserver::Options {
            port: arguments.api_port,
            backend: std::sync::Arc::new(backend),
            kubeconfig: Some(data.join("kubeconfig")),
            namespace: NAMESPACE.to_owned(),
            logs: Some(std::sync::Arc::new(logs.clone())),
            definitions: definitions.await?,
            ..cleat_apiserver::Options::default()
        })
        .await
        .map_err(|error| match error {
            cleat_apiserver::Error::Listen { .. } => {
                let hint = "choose another one with --api-port, or 0 for any";
                anyhow::Error::new(error).context(format!("port {} is taken: {hint}", arguments.api_port))
            }
            error => error.into(),
        })?;
        let access = Access::from_kubeconfig(&server.kubeconfig(), Some(NAMESPACE)).await?;
        let client = access.client()?;
        tokio::try_join!(forget_leases(&client), declare(&client, arguments, data))?;

        let [stop_front, stop_node, stop_operator] = [(); 3].map(|()| CancellationToken::new());
        let options = cleat_operator::Options {
            namespaces: vec![NAMESPACE.to_owned()],
            ..cleat_operator::Options::default()
        };
        let operator = cleat_operator::run(client.clone(), options, stop_operator.clone());
        let operator = tokio::spawn(async move { operator.await.context("the operator has failed") });
        let node = agent::Options { access, folder: data.join("pods"), logs, program };
        let node = tokio::spawn(agent::run(node, stop_node.clone()));
        let gateway = front::listen(arguments.port, client.clone(), NAMESPACE, stop_front.clone()).await?;
        let platform = Self { client, gateway, server, stop_front, stop_node, stop_operator, node, operator };
        if let Err(error) = platform.serves().await {
            platform.stop().await;
            return Err(error);
        }
        Ok(platform)
    }

    /// Waits for the Cluster.
    async fn serves(&self) -> Result<()> {
        let clusters: Api<Cluster> = Api::namespaced(self.client.clone(), NAMESPACE);
        let ready =
            |cluster: &Cluster| condition(cluster, "Ready").is_some_and(|(status, _)| status == "True");
        let waiting =
            ready::until(clusters.clone(), "default", START, "that Cluster default is ready", ready);
        match crate::output::waiting("starting", waiting).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let cluster = clusters.get("default").await?;
                let why = condition(&cluster, "Ready").map(|(_, why)| why).unwrap_or_default();
                let error = error.context(why);
                Err(match self.last_words().await? {
                    Some(words) => error.context(words),
                    None => error,
                })
            }
        }
    }

    /// Why a runner has failed, if one has.
    async fn last_words(&self) -> Result<Option<String>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pods = pods.list(&ListParams::default()).await?.items.into_iter();
        let containers = pods.filter_map(|pod| pod.status?.container_statuses).flatten();
        let mut words = containers.filter_map(|container| container.last_state?.terminated?.message);
        Ok(words.next())
    }

    /// What is to be done once it runs.
    async fn work(&self, arguments: &Arguments, data: &Path) -> Result<()> {
        let applying = async {
            match &arguments.file {
                Some(path) => apply::follow(&self.client, NAMESPACE, path, data.join("started")).await,
                None => std::future::pending().await,
            }
        };
        let showing = async {
            if arguments.demo {
                demo::run(&self.client, NAMESPACE, self.gateway).await?;
            }
            if arguments.exit {
                return Ok(());
            }
            println!("cleat: running; Ctrl-C stops it");
            std::future::pending().await
        };
        tokio::select! {
            applied = applying => applied,
            shown = showing => shown,
        }
    }

    /// Runners first, so that what they let go of is written down.
    async fn stop(self) {
        self.stop_front.cancel();
        self.stop_node.cancel();
        for (what, task) in [("the node", self.node), ("the operator", self.operator)] {
            if what == "the operator" {
                self.stop_operator.cancel();
            }
            match task.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(error = format!("{error:#}"), "{what} ended badly"),
                Err(error) => tracing::error!(%error, "{what} ended badly"),
            }
        }
        self.server.shutdown().await;
    }
}

/// The custom resources. Writing them takes a moment, in which something else can be done.
fn definitions() -> impl Future<Output = Result<Vec<Value>>> {
    let write = || cleat_crds::all().iter().map(serde_json::to_value).collect::<Result<_, _>>();
    let written = tokio::task::spawn_blocking(write);
    async { written.await?.context("the custom resources cannot be written") }
}

/// A condition of a Cluster: its status, and its reason and message.
fn condition(cluster: &Cluster, name: &str) -> Option<(String, String)> {
    let conditions = &cluster.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == name)?;
    Some((condition.status.clone(), format!("{}: {}", condition.reason, condition.message)))
}

/// This process is the only one that uses the folder: whoever holds a Lease is dead. The database's epochs stay.
async fn forget_leases(client: &Client) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().labels("cleat.dev/lease");
    leases.delete_collection(&DeleteParams::default(), &ours).await.context("cannot forget old Leases")?;
    Ok(())
}

/// The Secret and the Cluster. What somebody changed with kubectl stays as it is.
async fn declare(client: &Client, arguments: &Arguments, data: &Path) -> Result<()> {
    let url = match &arguments.database {
        Some(url) => url.clone(),
        None => format!("sqlite:{}", data.display()),
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": DATABASE}, "stringData": {"url": url},
    });
    let parameters = PatchParams::apply(MANAGER).force();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets.patch(DATABASE, &parameters, &Patch::Apply(&secret)).await.context("cannot write the Secret")?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), NAMESPACE);
    let there = clusters.get_opt("default").await?;
    let mut spec = json!({
        "database": {"secretRef": {"name": DATABASE, "key": "url"}},
        "gateway": {"auth": "None"},
    });
    // What is fixed once it is set belongs to whoever was first.
    let shards = there.as_ref().map_or(SHARDS.into(), |cluster| Value::from(cluster.spec.shards));
    let replicas = arguments.replicas.or_else(|| there.is_none().then_some(1));
    if let Value::Object(spec) = &mut spec {
        spec.insert("shards".to_owned(), shards);
        spec.extend(replicas.map(|replicas| ("replicas".to_owned(), replicas.into())));
    }
    let cluster = json!({
        "apiVersion": "cleat.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "default"}, "spec": spec,
    });
    // Without a say in it, the number of runners stays what it was scaled to.
    let patch =
        if there.is_none() || arguments.replicas.is_some() { Patch::Apply(&cluster) } else { return Ok(()) };
    clusters.patch("default", &parameters, &patch).await.context("cannot make the Cluster")?;
    Ok(())
}
