//! Runners as they are in pods: told by variables and files, and found by their Leases.

use std::path::PathBuf;

use cleat_crds::Cluster;
use cleat_proto::v1;
use cleat_proto::v1::admin_client::AdminClient;
use cleat_runner::Runner;
use cleat_runner::lease::kubernetes::Access;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{self as core, Secret};
use kube::api::PostParams;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::rig::{PATIENCE, Rig};

/// A runner of the Cluster `default`, in this process.
pub struct Pod {
    /// Where users ask it.
    pub gateway: String,
    /// Where the operator asks it.
    pub admin: String,
    credential: PathBuf,
    _folder: tempfile::TempDir,
    stop: CancellationToken,
    running: JoinHandle<Result<(), cleat_runner::runner::Error>>,
}

impl Pod {
    /// Starts one on a database, and waits until it is ready.
    pub async fn start(
        rig: &Rig,
        name: &str,
        url: &str,
        variables: &[(&str, &str)],
        compiled: impl FnOnce(Runner) -> Runner,
    ) -> Self {
        let cluster: Cluster = rig.api().get("default").await.unwrap();
        let object: core::Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"cleat.dev/cluster": "default", "app.kubernetes.io/name": "cleat-runner"}},
            "spec": {"containers": [{"name": "runner", "image": "i"}]},
        }))
        .unwrap();
        let object = rig.api::<core::Pod>().create(&PostParams::default(), &object).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let credential = folder.path().join("token");
        std::fs::write(&credential, tokens(rig).await).unwrap();
        let mut environment: Vec<(String, String)> = [
            ("CLEAT_CLUSTER", "default"),
            ("CLEAT_CLUSTER_UID", &cluster.uid().unwrap()),
            ("CLEAT_NAME", name),
            ("CLEAT_POD_UID", &object.meta().uid.clone().unwrap()),
            ("CLEAT_DATABASE_URL", url),
            ("CLEAT_PEER_TOKEN_FILE", credential.to_str().unwrap()),
            ("CLEAT_SHARDS", &crate::nodes::SHARDS.to_string()),
            ("CLEAT_VERSION", "1"),
            ("CLEAT_LISTEN", "127.0.0.1:0"),
            ("CLEAT_ADMIN_LISTEN", "127.0.0.1:0"),
            ("CLEAT_GATEWAY_LISTEN", "127.0.0.1:0"),
            ("CLEAT_GATEWAY_AUTH", "None"),
            ("CLEAT_DRAIN_TIMEOUT", "5s"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let access = Access::from_kubeconfig(&rig.server.kubeconfig(), Some("default")).await.unwrap();
        let lookup = move |wanted: &str| {
            environment.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let runner = compiled(Runner::from_variables(lookup).kubernetes(access));
        let stop = CancellationToken::new();
        let mut running = tokio::spawn(runner.run_until(stop.clone().cancelled_owned()));
        let place = |lease: &Lease| {
            let said = lease.metadata.annotations.as_ref()?;
            let at = |what: &str| said.get(&format!("cleat.dev/{what}")).cloned();
            (at("state")? == "ready").then_some((at("gateway")?, at("admin")?))
        };
        let (gateway, admin) = tokio::select! {
            place = rig.until(name, "says where it is", place) => place,
            ended = &mut running => panic!("{name} has ended: {ended:?}"),
        };
        Self { gateway, admin, credential, _folder: folder, stop, running }
    }

    /// Brings the credential to it, as a kubelet does after a while.
    pub async fn mount(&self, rig: &Rig) {
        std::fs::write(&self.credential, tokens(rig).await).unwrap();
    }

    /// Whether it lets somebody in who shows this token.
    pub async fn accepts(&self, token: &str) -> bool {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", self.admin)).unwrap();
        let mut client = AdminClient::new(channel.connect().await.unwrap());
        let mut request = tonic::Request::new(v1::WatchRequest {});
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let said: Result<_, Status> = client.watch(request).await;
        said.is_ok()
    }

    /// Asks its gateway.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.gateway,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.gateway).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.running).await.unwrap().unwrap().unwrap();
    }
}

/// The credential of the Cluster, as the operator has stored it.
pub async fn tokens(rig: &Rig) -> String {
    rig.until("default-credential", "has a credential", |secret: &Secret| {
        let data = secret.data.as_ref()?.get("token")?;
        Some(String::from_utf8_lossy(&data.0).into_owned())
    })
    .await
}
