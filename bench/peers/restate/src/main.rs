//! Restate as a subject of the benchmarks: a service of its Rust SDK in this process, and clients that ask it through the ingress of a
//! Restate server, which the bench starts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench_subject::protocol::{Method, Shards, Start};
use bench_subject::{Subject, serve};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// As long as ours.
const NOTE: &str = "a note of eighty bytes, as an order or a reservation would carry one along with them...";

/// How long the server may take to find the service.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Ask {
    number: u64,
    note: String,
}

#[derive(Serialize, Deserialize)]
struct Job {
    number: u64,
    activities: u32,
    note: String,
}

struct Echo;

#[service]
impl Echo {
    #[handler]
    async fn echo(&self, _ctx: Context<'_>, ask: Json<Ask>) -> Result<u64, HandlerError> {
        Ok(ask.into_inner().number)
    }
}

/// The counter of its examples.
struct Counter;

#[object]
impl Counter {
    #[handler]
    async fn add(&self, ctx: ObjectContext<'_>, _ask: Json<Ask>) -> Result<u64, HandlerError> {
        let total = ctx.get::<u64>("count").await?.unwrap_or(0) + 1;
        ctx.set("count", total);
        Ok(total)
    }
}

struct Steps;

#[workflow]
impl Steps {
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>, job: Json<Job>) -> Result<u64, HandlerError> {
        let job = job.into_inner();
        for step in 0..job.activities {
            ctx.run(|| async move { Ok(step) }).name("plain").await?;
        }
        Ok(job.number)
    }
}

struct Restate {
    client: Client<HttpConnector, Full<Bytes>>,
    ingress: String,
}

impl Restate {
    async fn post(&self, url: String, body: Vec<u8>) -> Result<Bytes> {
        let request = Request::post(&url)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let reply = self.client.request(request).await?;
        let status = reply.status();
        let body = reply.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{url}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Serves at an address of this machine and tells the server of it.
    async fn register(&self, admin: &str) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let uri = format!("http://{}", listener.local_addr()?);
        let endpoint = Endpoint::builder().bind(Echo).bind(Counter).bind(Steps).build();
        tokio::spawn(HttpServer::new(endpoint).serve(listener));
        let body = serde_json::to_vec(&serde_json::json!({ "uri": uri }))?;
        let register = async {
            loop {
                match self.post(format!("{admin}/deployments"), body.clone()).await {
                    Ok(_) => return,
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, register).await.context("the server does not take the service")?;
        // The ingress learns of it a little later.
        let known = async {
            while self.call(Method::Add, "nobody", 0).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, known).await.context("the ingress does not know the service")
    }
}

impl Subject for Restate {
    async fn start(start: Start) -> Result<Arc<Self>> {
        let server = start.leases.context("there is no server")?;
        let (ingress, admin) = server.split_once(' ').context("expected two addresses")?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let restate = Self { client, ingress: ingress.to_owned() };
        restate.register(admin).await?;
        Ok(Arc::new(restate))
    }

    async fn call(&self, method: Method, entity: &str, number: u64) -> Result<i64> {
        let ingress = &self.ingress;
        let ask = || serde_json::to_vec(&Ask { number, note: NOTE.to_owned() });
        let reply = match method {
            Method::Echo | Method::Outside => self.post(format!("{ingress}/Echo/echo"), ask()?).await?,
            Method::Add => self.post(format!("{ingress}/Counter/{entity}/add"), ask()?).await?,
            Method::Workflow { activities, transaction: false } => {
                let job = serde_json::to_vec(&Job { number, activities, note: NOTE.to_owned() })?;
                self.post(format!("{ingress}/Steps/{number}/run"), job).await?
            }
            Method::Workflow { transaction: true, .. } => bail!("its journal is in no SQL database"),
        };
        Ok(serde_json::from_slice(&reply)?)
    }

    fn is_local(&self, _: Method, _: &str) -> bool {
        true
    }

    async fn shards(&self) -> Shards {
        Shards { served: 1, total: 1 }
    }

    async fn stop(&self) -> Result<()> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    serve::<Restate>().await
}
