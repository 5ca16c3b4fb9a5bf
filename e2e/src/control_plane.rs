//! etcd, the API server, and the controllers.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::Mutex;

use crate::binaries::{Program, program};
use crate::certificates::{self, Authority};
use crate::component::{Component, Place};
use crate::home::{Home, Running};
use crate::sandbox::Sandbox;
use crate::{Kubectl, progress};

/// The addresses of services; the first is the API server's.
const SERVICES: &str = "10.96.0.0/16";
const FIRST_SERVICE: &str = "10.96.0.1";

/// The name of the node.
pub(crate) const NODE: &str = "cleat-node";

/// Ports below those that the system gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 15_000..30_000;

/// What a control plane consists of besides etcd and the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether the controllers run: garbage collection, namespaces, service accounts, deployments and so on.
    pub controllers: bool,
}

/// An API server with its storage. Dropping it removes everything.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order.
    controllers: Option<Component>,
    apiserver: Mutex<Option<Component>>,
    etcd: Component,
    place: Place,
    home: Home,
    ports: Ports,
    url: String,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    etcd: u16,
    peers: u16,
    apiserver: u16,
    controllers: u16,
}

impl ControlPlane {
    /// Starts one on loopback, which answers when this returns.
    ///
    /// # Errors
    /// A program is missing and cannot be built, or does not start.
    pub async fn start(options: Options) -> Result<Self> {
        let home = Home::create()?;
        let ports = Ports {
            etcd: free_port()?,
            peers: free_port()?,
            apiserver: free_port()?,
            controllers: free_port()?,
        };
        Self::start_at(home, Place::Machine, ports, options).await
    }

    /// Starts one in namespaces.
    pub(crate) async fn start_in_sandbox(options: Options) -> Result<Self> {
        let home = Home::create()?;
        let sandbox = Sandbox::create(&home)?;
        let ports = Ports { etcd: 2379, peers: 2380, apiserver: 6443, controllers: 10257 };
        Self::start_at(home, Place::Sandbox(sandbox), ports, options).await
    }

    async fn start_at(home: Home, place: Place, ports: Ports, options: Options) -> Result<Self> {
        let begun = Instant::now();
        let address = match &place {
            Place::Machine => "127.0.0.1",
            Place::Sandbox(sandbox) => &sandbox.address,
        };
        let url = format!("https://{address}:{}", ports.apiserver);
        let authority = Authority::create(&home)?;
        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1"];
        let names = [&names[..], &[FIRST_SERVICE, address]].concat();
        authority.sign("apiserver", "kube-apiserver", None, &names)?;
        authority.sign("admin", "admin", Some("system:masters"), &[])?;
        authority.sign("front-proxy", "front-proxy", None, &[])?;
        authority.sign(
            "node",
            &format!("system:node:{NODE}"),
            Some("system:nodes"),
            &[NODE, "127.0.0.1", address],
        )?;
        certificates::kubeconfig(&home, "kubeconfig", "admin", &url)?;
        certificates::kubeconfig(&home, "etc/node.kubeconfig", "node", &url)?;

        let etcd = start_etcd(&home, &place, ports).await?;
        let apiserver = Mutex::new(None);
        let mut plane = Self { controllers: None, apiserver, etcd, place, home, ports, url };
        plane.start_api_server().await?;
        if options.controllers {
            plane.start_controllers().await?;
        }
        progress(format_args!(
            "API server ready at {} after {:.1} s",
            plane.url,
            begun.elapsed().as_secs_f64()
        ));
        Ok(plane)
    }

    /// Where its API is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The kubeconfig of an administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path("kubeconfig")
    }

    /// A client of the administrator's.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        client(&self.kubeconfig()).await
    }

    /// kubectl for it.
    ///
    /// # Errors
    /// There is no kubectl and it cannot be built.
    pub async fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(Program::Kubectl, &self.kubeconfig()).await
    }

    /// Says that a test runs here, so that logs are kept if it does not pass.
    ///
    /// # Errors
    /// The mark cannot be written.
    pub fn running(&self, test: &str) -> Result<Running> {
        self.home.running(test)
    }

    /// Stops the API server; when this returns, it is gone.
    ///
    /// # Errors
    /// It does not run or does not end.
    pub async fn stop_api_server(&self) -> Result<()> {
        let Some(running) = self.apiserver.lock().await.take() else { bail!("the API server does not run") };
        running.stop().await
    }

    /// Starts the API server, with what it stored before; when this returns, it is ready.
    ///
    /// # Errors
    /// It runs already or does not start.
    pub async fn start_api_server(&self) -> Result<()> {
        let mut apiserver = self.apiserver.lock().await;
        if apiserver.is_some() {
            bail!("the API server runs already");
        }
        let program = program(Program::Apiserver).await?;
        let arguments = self.apiserver_arguments();
        let mut started = Component::start(&self.home, &self.place, "kube-apiserver", &program, arguments)?;
        let kubeconfig = self.kubeconfig();
        started.ready(|| is_ready(&kubeconfig)).await?;
        *apiserver = Some(started);
        Ok(())
    }

    fn apiserver_arguments(&self) -> Vec<String> {
        let etc = self.home.path("etc");
        let file = |flag: &str, name: &str| format!("--{flag}={}", etc.join(name).display());
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            format!("--secure-port={}", self.ports.apiserver),
            format!("--service-cluster-ip-range={SERVICES}"),
            file("client-ca-file", "ca.crt"),
            file("tls-cert-file", "apiserver.crt"),
            file("tls-private-key-file", "apiserver.key"),
            file("kubelet-certificate-authority", "ca.crt"),
            file("kubelet-client-certificate", "admin.crt"),
            file("kubelet-client-key", "admin.key"),
            file("requestheader-client-ca-file", "ca.crt"),
            file("proxy-client-cert-file", "front-proxy.crt"),
            file("proxy-client-key-file", "front-proxy.key"),
            file("service-account-key-file", "tokens.pub"),
            file("service-account-signing-key-file", "tokens.key"),
        ];
        let fixed = "--allow-privileged --authorization-mode=Node,RBAC --enable-aggregator-routing \
            --kubelet-preferred-address-types=InternalIP --requestheader-allowed-names=front-proxy \
            --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
            --requestheader-extra-headers-prefix=X-Remote-Extra- \
            --service-account-issuer=https://kubernetes.default.svc";
        arguments.extend(fixed.split_whitespace().map(str::to_owned));
        match &self.place {
            // Nobody reaches it as a service, and a loopback address may not be one's endpoint.
            Place::Machine => arguments
                .extend(["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"].map(str::to_owned)),
            Place::Sandbox(sandbox) => {
                arguments.push("--bind-address=0.0.0.0".to_owned());
                arguments.push(format!("--advertise-address={}", sandbox.address));
            }
        }
        arguments
    }

    async fn start_controllers(&mut self) -> Result<()> {
        let etc = self.home.path("etc");
        let file = |flag: &str, name: &str| format!("--{flag}={}", etc.join(name).display());
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            file("service-account-private-key-file", "tokens.key"),
            file("root-ca-file", "ca.crt"),
            file("cluster-signing-cert-file", "ca.crt"),
            file("cluster-signing-key-file", "ca.key"),
            format!("--secure-port={}", self.ports.controllers),
            "--bind-address=127.0.0.1".to_owned(),
            "--use-service-account-credentials".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        let program = program(Program::ControllerManager).await?;
        let mut started =
            Component::start(&self.home, &self.place, "kube-controller-manager", &program, arguments)?;
        let kubectl = self.kubectl().await?;
        let account = "get serviceaccount default --namespace default";
        started.ready(|| async { kubectl.run(account).await.is_ok() }).await?;
        self.controllers = Some(started);
        Ok(())
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Fails if a part of it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.etcd.check()?;
        self.controllers.as_mut().map_or(Ok(()), Component::check)
    }
}

async fn start_etcd(home: &Home, place: &Place, ports: Ports) -> Result<Component> {
    let (clients, peers) =
        (format!("http://127.0.0.1:{}", ports.etcd), format!("http://127.0.0.1:{}", ports.peers));
    let data = home.path("data/etcd");
    let arguments = [
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        "--log-level=warn".to_owned(),
    ];
    // The API server waits for it.
    Component::start(home, place, "etcd", &program(Program::Etcd).await?, arguments)
}

async fn is_ready(kubeconfig: &Path) -> bool {
    let Ok(client) = client(kubeconfig).await else { return false };
    let request = http::Request::get("/readyz").body(Vec::new());
    let Ok(request) = request else { return false };
    matches!(client.request_text(request).await, Ok(text) if text == "ok")
}

/// A client for what a kubeconfig leads to.
pub(crate) async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// A port that nobody listens on at this moment.
fn free_port() -> Result<u16> {
    let mut ports = std::iter::repeat_with(|| rand::random_range(PORTS)).take(1_000);
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).context("no port is free")
}
