//! README and docs on a real Kubernetes: the commands that need one are run as they are written. So is the command line, by a user who
//! is no administrator.
//!
//! Both tests leave nothing behind: there is one release of the chart at a time, and the next to come has its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cleat_testing::postgres::{Options, Server};
use e2e::document::{Place, Session, pages};
use e2e::image::Image;
use e2e::product::Product;
use e2e::{Cluster, Kubectl, Program, guest, program};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// What the chart takes if nobody says otherwise.
const TAG: &str = env!("CARGO_PKG_VERSION");

/// A Kubernetes whose node has the images.
struct World {
    cluster: Arc<Cluster>,
    cleat: PathBuf,
    kubectl: PathBuf,
    helm: PathBuf,
}

async fn turn() -> Result<(&'static World, MutexGuard<'static, ()>)> {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let world = WORLD.get_or_try_init(|| async {
        let product = Product::for_tests().await?;
        let cluster = Cluster::shared().await?;
        cluster.load(&product.operator(TAG)).await?;
        cluster.load(&product.runner(TAG)).await?;
        let (kubectl, helm) = (program(Program::Kubectl).await?, program(Program::Helm).await?);
        anyhow::Ok(World { cluster, cleat: product.command_line, kubectl, helm })
    });
    Ok((world.await?, turn))
}

impl World {
    async fn postgres(&self) -> Result<Server> {
        let (machine, node) = (self.cluster.machine()?, self.cluster.node().await?);
        Ok(Server::start(Options::default().serve(machine, &format!("{node}/32"))).await?)
    }

    /// Nothing can be pulled here: the image of the example leads to a PostgreSQL beside the cluster.
    async fn stand_in(&self, server: &Server) -> Result<()> {
        let url = server.url_at(self.cluster.machine()?, "postgres");
        let address = url.split(['@', '/']).nth(3).context("no address")?.to_owned();
        let image = Image::new("docker.io/library/postgres:17").program(guest().await?, "/guest");
        self.cluster.load(&image.entrypoint(["/guest", "forward", "5432", &address])).await
    }

    /// Removes the release.
    async fn uninstall(&self) -> Result<()> {
        self.cluster.helm().await?.run("uninstall cleat --namespace cleat-system --wait").await?;
        self.cluster.kubectl().await?.run("delete namespace cleat-system --timeout=120s").await?;
        Ok(())
    }

    /// A shell with all that a user has.
    fn session(&self, kubeconfig: &Path) -> Result<Session> {
        let programs: [(&str, &Path); 4] = [
            ("cleat", &self.cleat),
            ("kubectl-cleat", &self.cleat),
            ("kubectl", &self.kubectl),
            ("helm", &self.helm),
        ];
        Ok(Session::new(&programs)?.variable("KUBECONFIG", &kubeconfig.display().to_string()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_for_a_cluster_does_what_it_says() -> Result<()> {
    let (world, _turn) = turn().await?;
    let running = world.cluster.running("documents")?;
    let kubectl = world.cluster.kubectl().await?;
    // Whoever cleans up goes first.
    let mut pages = pages()?;
    pages.retain(|page| page.has_commands(Place::Cluster));
    pages.sort_by_key(|page| page.name == "README.md");
    ensure!(pages.len() >= 2, "{} pages have commands for a cluster", pages.len());
    for page in pages {
        let server = world.postgres().await?;
        world.stand_in(&server).await?;
        let mut session = world.session(&world.cluster.kubeconfig())?;
        let page_name = page.name.clone();
        let done = tokio::task::spawn_blocking(move || session.run(&page, Place::Cluster)).await?;
        if done.is_err() {
            for look in [
                "get ccl,cet,cwt,cwf -A -o yaml",
                "get pods,events -A",
                "logs -n cleat-system deployment/cleat-operator --all-pods --prefix --tail=400",
            ] {
                let seen = kubectl.attempt(look, "").await?;
                e2e::progress(format_args!("{look}\n{}{}", seen.output, seen.errors));
            }
        }
        done.with_context(|| page_name)?;
        kubectl.run("delete deployment postgres").await?;
    }
    kubectl.run("delete ccl,cwf,cet,cwt --all --timeout=120s").await?;
    world.uninstall().await?;
    running.passed();
    Ok(())
}

/// A kubeconfig of somebody who may edit in one namespace.
async fn user(kubectl: &Kubectl, namespace: &str, folder: &Path) -> Result<PathBuf> {
    kubectl.run(&format!("create serviceaccount ann -n {namespace}")).await?;
    let bind =
        format!("create rolebinding ann --clusterrole=edit --serviceaccount={namespace}:ann -n {namespace}");
    kubectl.run(&bind).await?;
    let token = kubectl.run(&format!("create token ann --duration=1h -n {namespace}")).await?;
    let own = kubectl.with_token(token.trim(), folder).await?;
    own.run(&format!("config set-context --current --namespace={namespace}")).await?;
    Ok(folder.join("kubeconfig"))
}

/// The command line of a user.
struct User<'w> {
    world: &'w World,
    kubeconfig: PathBuf,
}

impl User<'_> {
    async fn attempt(&self, arguments: &[&str]) -> Result<Result<String, String>> {
        let mut command = tokio::process::Command::new(&self.world.cleat);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("CLEAT_GATEWAY")
            .kill_on_drop(true);
        let done = command.output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) })
    }

    async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.attempt(arguments).await?.map_err(|error| anyhow::anyhow!("cleat {arguments:?}: {error}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_finds_its_way_into_a_cluster() -> Result<()> {
    let (world, _turn) = turn().await?;
    let running = world.cluster.running("command-line")?;
    let (kubectl, helm) = (world.cluster.kubectl().await?, world.cluster.helm().await?);
    let (folder, server) = (tempfile::tempdir()?, world.postgres().await?);
    helm.run("install cleat . --namespace cleat-system --create-namespace --wait --timeout 3m").await?;
    kubectl.run("create namespace shop").await?;
    let database = server.database().await?;
    let url = server.url_at(world.cluster.machine()?, &database.name);
    kubectl.run(&format!("create secret generic cleat-database -n shop --from-literal=url={url}")).await?;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let files = ["first/cluster", "orders/entities", "orders/workflow", "orders/cron"];
    let files = files.map(|file| format!("-f {}", examples.join(format!("{file}.yaml")).display())).join(" ");
    kubectl.run(&format!("apply -n shop {files}")).await?;
    kubectl.run("wait -n shop --for=condition=Ready ccl/default --timeout=180s").await?;
    kubectl
        .run("wait -n shop --for=condition=Ready cet/inventory cet/payments cwt/order --timeout=60s")
        .await?;
    let user = User { world, kubeconfig: user(&kubectl, "shop", folder.path()).await? };

    let doctor = user.run(&["doctor"]).await?;
    ensure!(!doctor.contains("FAIL"), "{doctor}");
    let runners: Vec<Value> = serde_json::from_str(&user.run(&["runners", "-o", "json"]).await?)?;
    ensure!(runners.len() == 3 && runners.iter().all(|runner| runner["state"] == "ready"), "{runners:?}");
    let drawn = user.run(&["shards"]).await?;
    ensure!(drawn.contains("C  ") && !drawn.contains("nobody"), "{drawn}");
    ensure!(user.run(&["entities"]).await?.contains("inventory"));

    // From here on each answer has come through a forwarded port.
    let stock = user.run(&["call", "inventory/apples", "restock", r#"{"count": 10}"#]).await?;
    ensure!(serde_json::from_str::<Value>(&stock)?["stock"] == 10, "{stock}");
    let order = r#"{"order": "o-1", "item": "apples", "count": 3, "amount": 20000, "parcels": []}"#;
    let started = user.run(&["workflow", "start", "order", order, "--key", "o-1"]).await?;
    ensure!(started.contains("order:o-1 started"), "{started}");
    user.run(&["workflow", "signal", "order:o-1", "approved", "{}"]).await?;
    let watched = user.run(&["workflow", "watch", "order:o-1"]).await?;
    ensure!(watched.contains("Completed"), "{watched}");
    ensure!(user.run(&["workflow", "history", "order:o-1"]).await?.contains("reserve"));
    ensure!(user.run(&["dead-letters", "list"]).await?.contains("no dead letters"));
    user.run(&["cron", "trigger", "restock"]).await?;
    let forged = user.attempt(&["call", "inventory/apples", "get", "--token", "forged"]).await?;
    ensure!(forged.is_err_and(|error| error.contains("--token")), "a forged token is let in");

    kubectl.run("delete namespace shop --timeout=120s").await?;
    world.uninstall().await?;
    running.passed();
    Ok(())
}
