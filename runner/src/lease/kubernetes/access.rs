//! The way to the API server.

use std::net::IpAddr;
use std::time::Duration;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// The API server that a runner belongs to, and its namespace there. Cheap enough to clone.
#[derive(Clone)]
pub struct Access {
    config: Config,
    namespace: String,
}

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum NoAccess {
    /// Nothing says where it is.
    #[error("nothing says where the API server is: run in a pod with a service account, or set KUBECONFIG")]
    Nowhere(#[source] Box<InferConfigError>),
    /// A kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// No client can be made of what is said.
    #[error("what the configuration of Kubernetes says cannot be used")]
    Client(#[source] Box<kube::Error>),
}

/// How long a connection may take. A lock that is renewed every three seconds has time for another attempt.
const CONNECT: Duration = Duration::from_secs(3);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

impl Access {
    /// As the environment says: the service account of the pod, or a kubeconfig. The namespace is that of either, unless one is given.
    ///
    /// # Errors
    /// [`NoAccess::Nowhere`] if neither can be used.
    pub async fn infer(namespace: Option<&str>) -> Result<Self, NoAccess> {
        let config = Config::infer().await.map_err(|error| NoAccess::Nowhere(Box::new(error)))?;
        Ok(Self::new(config, namespace))
    }

    /// As a kubeconfig says.
    ///
    /// # Errors
    /// [`NoAccess::Kubeconfig`] if it cannot be used.
    pub async fn from_kubeconfig(text: &str, namespace: Option<&str>) -> Result<Self, NoAccess> {
        let wrong = |error| NoAccess::Kubeconfig(Box::new(error));
        let kubeconfig = Kubeconfig::from_yaml(text).map_err(wrong)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Ok(Self::new(config.map_err(wrong)?, namespace))
    }

    /// As a configuration of kube says.
    pub fn new(config: Config, namespace: Option<&str>) -> Self {
        let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
        Self { config, namespace }
    }

    /// The same as somebody else, if whoever this is may impersonate them: what may they do?
    #[must_use]
    pub fn acting_as(mut self, user: &str) -> Self {
        self.config.auth_info.impersonate = Some(user.to_owned());
        self
    }

    /// The namespace of the Cluster.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The addresses of the API server, as far as they are known here.
    pub async fn addresses(&self) -> Vec<IpAddr> {
        let url = &self.config.cluster_url;
        let port = url.port_u16().unwrap_or(443);
        let inside = std::env::var("KUBERNETES_SERVICE_HOST").ok();
        let mut addresses = Vec::new();
        for host in url.host().map(ToOwned::to_owned).into_iter().chain(inside) {
            let host = host.trim_matches(['[', ']']).to_owned();
            // A name that leads nowhere now is not asked through, either.
            if let Ok(found) = tokio::net::lookup_host((host, port)).await {
                addresses.extend(found.map(|address| address.ip()));
            }
        }
        addresses
    }

    /// A client for whatever is not urgent: it waits and tries again by itself.
    ///
    /// # Errors
    /// [`NoAccess::Client`] if none can be made.
    pub fn client(&self) -> Result<Client, NoAccess> {
        client(self.config.clone())
    }

    /// A client that waits for nobody for long and tries nothing twice: whoever asks decides about that.
    pub(super) fn bounded(&self) -> Result<Client, NoAccess> {
        let mut config = self.config.clone();
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        config.write_timeout = Some(ANSWER);
        // Reads are bounded by who reads: a watch may be quiet for longer than an answer may take.
        config.read_timeout = None;
        client(config)
    }
}

fn client(config: Config) -> Result<Client, NoAccess> {
    Client::try_from(config).map_err(|error| NoAccess::Client(Box::new(error)))
}
