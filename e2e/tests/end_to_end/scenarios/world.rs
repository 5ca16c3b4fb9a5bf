//! What all scenarios share: a Kubernetes, Cleat on it, and a PostgreSQL beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use cleat_testing::postgres::{Options, Server};
use e2e::product::Product;
use e2e::{Cluster, Helm, Kubectl, Running, progress};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The namespace of the release.
pub const SYSTEM: &str = "cleat-system";

/// The tag of the images that the release is installed with.
pub const TAG: &str = "one";

/// The tag of the same images for upgrades.
pub const NEXT: &str = "two";

/// A scenario's turn on what all share.
pub struct Turn {
    pub world: &'static World,
    name: &'static str,
    begun: Instant,
    running: Running,
    _turn: MutexGuard<'static, ()>,
}

pub struct World {
    pub cluster: Arc<Cluster>,
    pub kubectl: Kubectl,
    pub helm: Helm,
    pub postgres: Mutex<Server>,
    /// Where pods reach the database server.
    pub machine: String,
    /// Where Services of type NodePort are.
    pub node: String,
}

impl Turn {
    /// Waits for the turn of a scenario; the first one installs everything.
    pub async fn take(name: &'static str) -> Result<Self> {
        static WORLD: OnceCell<World> = OnceCell::const_new();
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let world = WORLD.get_or_try_init(World::create).await?;
        progress(format_args!("=== {name}"));
        Ok(Self { world, name, begun: Instant::now(), running: world.cluster.running(name)?, _turn: turn })
    }

    /// Says that the scenario has passed.
    pub fn passed(self) {
        progress(format_args!("=== {}: passed after {} s", self.name, self.begun.elapsed().as_secs()));
        self.running.passed();
    }

    /// Tells a result that is worth a line in the table.
    pub fn tell(&self, what: impl std::fmt::Display) {
        progress(format_args!("    {}: {what}", self.name));
    }
}

impl World {
    async fn create() -> Result<Self> {
        let product = Product::for_tests().await?;
        let cluster = Cluster::shared().await?;
        let starting = cluster.running("install")?;
        for tag in [TAG, NEXT] {
            cluster.load(&product.operator(tag).label("cleat.dev/tag", tag)).await?;
            cluster.load(&product.runner(tag).label("cleat.dev/tag", tag)).await?;
        }
        progress("the images are loaded");
        let (machine, node) = (cluster.machine()?.to_owned(), cluster.node().await?);
        let kubectl = cluster.kubectl().await?;
        // Pods come from the address of their node or, if nothing is in between, from their own.
        let nodes = "get nodes -o jsonpath={.items[*].status.addresses[?(@.type==\"InternalIP\")].address}";
        let nodes = kubectl.run(nodes).await?;
        let pods = kubectl.run("get nodes -o jsonpath={.items[*].spec.podCIDR}").await?;
        let networks = nodes.split_whitespace().map(|node| format!("{node}/32"));
        let networks = networks.chain(pods.split_whitespace().map(str::to_owned));
        let options = networks.fold(Options::default(), |options, network| options.serve(&machine, &network));
        let postgres = Server::start(options).await?;
        let world = Self {
            kubectl,
            helm: cluster.helm().await?,
            postgres: Mutex::new(postgres),
            machine,
            node,
            cluster,
        };
        world.namespace(SYSTEM).await?;
        let begun = Instant::now();
        world.install("upgrade --install cleat .").await?;
        progress(format_args!("installed after {:.1} s", begun.elapsed().as_secs_f64()));
        starting.passed();
        Ok(world)
    }

    /// Installs or upgrades the release with the usual values, and waits until the operator is ready.
    pub async fn install(&self, command: &str) -> Result<String> {
        let values = format!("--set image.tag={TAG},image.pullPolicy=Never,operator.log=info");
        self.helm.run(&format!("{command} --namespace {SYSTEM} {values} --wait --timeout 3m")).await
    }

    /// A namespace in which only restricted pods run.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        self.kubectl
            .run_with("apply -f -", &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"))
            .await?;
        let label = format!("label namespace {name} pod-security.kubernetes.io/enforce=restricted");
        self.kubectl.run(&label).await?;
        e2e::until("there is no service account", || async {
            Ok(self.kubectl.attempt(&format!("get serviceaccount default -n {name}"), "").await?.success)
        })
        .await
    }

    /// The pod of the operator that leads.
    pub async fn leader(&self) -> Result<String> {
        let holder = format!("get lease cleat-operator -n {SYSTEM} -o jsonpath={{.spec.holderIdentity}}");
        let holder = self.kubectl.run(&holder).await?;
        let pods = format!("get pods -n {SYSTEM} -l app.kubernetes.io/name=cleat-operator -o name");
        let pods = self.kubectl.run(&pods).await?;
        // The holder is the pod's name, or begins with it.
        let names = pods.lines().filter_map(|name| name.strip_prefix("pod/"));
        Ok(names.into_iter().find(|name| holder.starts_with(name)).unwrap_or(&holder).to_owned())
    }

    /// Looks until a command of kubectl prints something that fits, for at most `limit`.
    pub async fn wait_for(
        &self,
        limit: Duration,
        command: &str,
        fits: impl Fn(&str) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let last = Mutex::new(String::new());
        let found = e2e::within(limit, format_args!("kubectl {command}"), || async {
            let outcome = self.kubectl.attempt(command, "").await?;
            let text = outcome.output + &outcome.errors;
            let fitting = fits(text.trim());
            *last.lock().await = text;
            Ok(fitting.then_some(()))
        })
        .await;
        match found {
            Ok(()) => Ok(begun.elapsed()),
            Err(error) => Err(error.context(last.into_inner())),
        }
    }
}
