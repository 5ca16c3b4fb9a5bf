//! A runner with an admin port, and those who ask there.

use std::sync::Arc;

use cleat_proto::v1::admin_client::AdminClient;
use cleat_runner::admin::{self, Definitions, Server};
use cleat_runner::transport::SharedToken;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::nodes::{Runner, World};

pub const CREDENTIAL: &str = "a secret of the cluster";

/// A runner with an admin port.
pub struct Port {
    pub runner: Runner,
    pub address: String,
    pub definitions: watch::Sender<Definitions>,
    pub stop: CancellationToken,
    pub serving: tokio::task::JoinHandle<()>,
}

pub type Client = AdminClient<
    InterceptedService<Channel, Box<dyn FnMut(Request<()>) -> Result<Request<()>, Status> + Send>>,
>;

impl Port {
    pub async fn start(world: &World, name: &str) -> Self {
        Self::over(world.start(name).await, name).await
    }

    pub async fn over(runner: Runner, name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (definitions, defined) = watch::channel(Definitions::default());
        let parts = admin::Parts {
            node: runner.node.clone(),
            metrics: runner.metrics.clone(),
            verify: Arc::new(SharedToken::new(CREDENTIAL)),
            definitions: defined,
        };
        let server = Server::new(admin::Options::new(name, "0.1.0", "cluster"), parts);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.serve(listener, stop.clone()));
        Self { runner, address, definitions, stop, serving }
    }

    /// Somebody who shows a credential, or none.
    pub async fn client_with(&self, credential: Option<&'static str>) -> Client {
        let channel = Endpoint::new(format!("http://{}", self.address)).unwrap().connect().await.unwrap();
        AdminClient::with_interceptor(
            channel,
            Box::new(move |mut request: Request<()>| {
                if let Some(credential) = credential {
                    let shown = MetadataValue::try_from(format!("Bearer {credential}")).unwrap();
                    request.metadata_mut().insert("authorization", shown);
                }
                Ok(request)
            }),
        )
    }

    pub async fn client(&self) -> Client {
        self.client_with(Some(CREDENTIAL)).await
    }

    /// A page, as somebody without any credential sees it: status and body.
    pub async fn page(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Waits until a page has this status.
    pub async fn until_page(&self, path: &str, status: u16) -> String {
        let waiting = async {
            loop {
                let (now, body) = self.page(path).await;
                if now == status {
                    return body;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(crate::nodes::PATIENCE, waiting).await.expect("the page never had this status")
    }
}

/// The reason that a refusal carries.
pub fn reason(status: &Status) -> &str {
    status.metadata().get("cleat-reason").map(|reason| reason.to_str().unwrap()).unwrap_or_default()
}
