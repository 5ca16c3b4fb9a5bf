//! How an operator is to be run.

use std::net::SocketAddr;
use std::time::Duration;

/// How an operator is to be run. [`Options::default`] serves all namespaces, alone, without a port.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The namespaces that are served, with commas between them; all if there are none.
    #[arg(long, env = "CLEAT_WATCH_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// The namespace that the operator runs in.
    #[arg(long, env = "CLEAT_OPERATOR_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// The name of this replica: its pod.
    #[arg(long, env = "CLEAT_OPERATOR_NAME", default_value = "cleat-operator")]
    pub name: String,
    /// The Lease by which replicas agree on who works; without it, this one always does.
    #[arg(long, env = "CLEAT_OPERATOR_LEASE")]
    pub lease: Option<String>,
    /// Where /livez, /readyz and /metrics are served; nowhere if it is not said.
    #[arg(long, env = "CLEAT_OPERATOR_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// What runners are made of.
    #[command(flatten)]
    pub runner: Runner,
    /// A file with a Cluster that is applied at the start.
    #[arg(long, env = "CLEAT_DEFAULT_CLUSTER_FILE")]
    pub default_cluster: Option<String>,
    /// How many objects of a kind are reconciled at once.
    #[arg(long, env = "CLEAT_OPERATOR_CONCURRENCY", default_value_t = 16)]
    pub concurrency: u16,
    /// How many statuses of Workflows are written in a second at most.
    #[arg(long, env = "CLEAT_OPERATOR_STATUS_RATE", default_value_t = 50)]
    pub status_rate: u32,
    /// How often it is looked whether what is kept of executions is what Workflows still show, in seconds.
    #[arg(long, env = "CLEAT_OPERATOR_SWEEP", default_value = "600", value_parser = seconds)]
    pub sweep: Duration,
    /// How long the deletion of a Workflow waits for its execution to undo what it did, in seconds.
    #[arg(long, env = "CLEAT_OPERATOR_DELETION_LIMIT", default_value = "300", value_parser = seconds)]
    pub deletion_limit: Duration,
}

/// What runners are made of if their Cluster says nothing else.
#[derive(Debug, Clone, clap::Args)]
pub struct Runner {
    /// The image of runners whose Cluster names none.
    #[arg(long = "runner-image", env = "CLEAT_RUNNER_IMAGE", default_value_t = image())]
    pub image: String,
    /// When that image is pulled.
    #[arg(long = "runner-pull-policy", env = "CLEAT_RUNNER_PULL_POLICY", default_value = "IfNotPresent")]
    pub pull_policy: String,
    /// The Secrets that are needed to pull it, with commas between them.
    #[arg(long = "runner-pull-secrets", env = "CLEAT_RUNNER_PULL_SECRETS", value_delimiter = ',')]
    pub pull_secrets: Vec<String>,
    /// The ClusterRole that lets runners do what they have to.
    #[arg(long = "runner-role", env = "CLEAT_RUNNER_ROLE", default_value = "cleat-runner")]
    pub role: String,
    /// The ClusterRoleBinding whose subjects may ask who is calling a gateway; it is left alone if it is not said.
    #[arg(long = "gateway-binding", env = "CLEAT_GATEWAY_BINDING")]
    pub gateway_binding: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            namespace: "default".to_owned(),
            name: "cleat-operator".to_owned(),
            lease: None,
            listen: None,
            runner: Runner {
                image: image(),
                pull_policy: "IfNotPresent".to_owned(),
                pull_secrets: Vec::new(),
                role: "cleat-runner".to_owned(),
                gateway_binding: None,
            },
            default_cluster: None,
            concurrency: 16,
            status_rate: 50,
            sweep: Duration::from_secs(600),
            deletion_limit: Duration::from_secs(300),
        }
    }
}

impl Options {
    /// Variables that are set to nothing are as good as not set.
    #[must_use]
    pub fn cleaned(mut self) -> Self {
        self.namespaces.retain(|namespace| !namespace.is_empty());
        self.runner.pull_secrets.retain(|secret| !secret.is_empty());
        self.lease = self.lease.filter(|lease| !lease.is_empty());
        self.runner.gateway_binding = self.runner.gateway_binding.filter(|binding| !binding.is_empty());
        self.default_cluster = self.default_cluster.filter(|path| !path.is_empty());
        self
    }
}

/// The image as `make image` names it.
fn image() -> String {
    format!("cleat.local/runner:{}", env!("CARGO_PKG_VERSION"))
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}
