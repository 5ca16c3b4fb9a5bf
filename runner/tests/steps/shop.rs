//! Entities and services for workflows to ask, and a house in which they live.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use cleat_crds::workflow_type::WorkflowTypeSpec;
use cleat_runner::message::{Outcome, codec};
use cleat_runner::prelude::*;
use cleat_runner::steps::{self, Reach, Written};
use cleat_runner::store::Store;
use cleat_runner::workflow::test::Test;
use cleat_runner::workflow::{Executions, Host, Key, Report, StepPhase, Terms};
use http::Response;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::service::{Service, answer, egress, options};
use crate::world::{self, Place};

#[derive(Default, Serialize, Deserialize)]
pub struct Stock {
    pub stock: i64,
    pub reserved: BTreeMap<String, i64>,
}

#[derive(Serialize, Deserialize)]
pub struct Reserve {
    order: String,
    count: i64,
}

#[derive(Serialize, Deserialize)]
pub struct Restock {
    pub count: i64,
}

#[derive(Serialize, Deserialize)]
pub struct Release {
    order: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Refused {
    OutOfStock(i64),
    CardRefused,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfStock(left) => write!(f, "only {left} left"),
            Self::CardRefused => f.write_str("the card was refused"),
        }
    }
}

#[entity(name = "inventory", state = Stock, concurrency = 1)]
pub struct Inventory;

#[entity_impl]
impl Inventory {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut Stock, request: Restock) -> Result<i64, Never> {
        stock.stock += request.count;
        Ok(stock.stock)
    }

    #[rpc(persisted)]
    pub async fn reserve(&self, stock: &mut Stock, request: Reserve) -> Result<i64, Refused> {
        if stock.stock < request.count {
            return Err(Refused::OutOfStock(stock.stock));
        }
        stock.stock -= request.count;
        *stock.reserved.entry(request.order).or_default() += request.count;
        Ok(stock.stock)
    }

    #[rpc(persisted)]
    pub async fn release(&self, stock: &mut Stock, request: Release) -> Result<(), Never> {
        stock.stock += stock.reserved.remove(&request.order).unwrap_or_default();
        Ok(())
    }

    #[rpc]
    pub async fn get(&self, stock: &Stock) -> Result<i64, Never> {
        Ok(stock.stock)
    }
}

#[derive(Default, Serialize, Deserialize)]
pub struct Account {
    charged: i64,
    times: i64,
}

#[derive(Serialize, Deserialize)]
pub struct Charge {
    amount: i64,
}

#[derive(Serialize, Deserialize)]
pub struct Receipt {
    pub receipt: String,
}

#[entity(name = "payments", state = Account, concurrency = 1)]
pub struct Payments;

#[entity_impl]
impl Payments {
    #[rpc(persisted)]
    pub async fn charge(&self, account: &mut Account, request: Charge) -> Result<Receipt, Refused> {
        if request.amount > 1_000_000 {
            return Err(Refused::CardRefused);
        }
        account.charged += request.amount;
        account.times += 1;
        Ok(Receipt { receipt: format!("r-{}", account.charged) })
    }

    #[rpc(persisted)]
    pub async fn refund(&self, account: &mut Account) -> Result<(), Never> {
        account.charged = 0;
        account.times += 1;
        Ok(())
    }

    #[rpc]
    pub async fn get(&self, account: &Account) -> Result<(i64, i64), Never> {
        Ok((account.charged, account.times))
    }
}

/// As users write it, who say it in YAML and send it as JSON.
pub fn workflow(yaml: &str) -> WorkflowTypeSpec {
    let value: Value = serde_yaml::from_str(yaml).unwrap();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

/// A host with the shop's entities, and a carrier who ships.
pub struct Shop {
    pub place: Place,
    pub store: Arc<dyn Store>,
    pub host: Host,
    pub reach: Reach,
    pub carrier: Arc<Service>,
}

impl Shop {
    pub async fn new(place: Place) -> Self {
        Self::with_carrier(place, |_| json_answer(&json!({"shipped": true}))).await
    }

    pub async fn with_carrier(
        place: Place,
        script: impl Fn(usize) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let store = place.open().await;
        let carrier = Arc::new(Service::start(script, None).await);
        Self::over(place, store, carrier).await
    }

    pub async fn over(place: Place, store: Arc<dyn Store>, carrier: Arc<Service>) -> Self {
        let host = world::serve(&store, world::options()).await;
        Inventory.register(&host).unwrap();
        Payments.register(&host).unwrap();
        let reach = Reach::new(&host, egress(options()));
        steps::register_inline(&host, &reach).unwrap();
        Self { place, store, host, reach, carrier }
    }

    /// Another process on the same data, after this one has died.
    pub async fn restart(self) -> Self {
        self.host.abandon();
        self.host.entities().shutdown(Duration::ZERO).await;
        // Opened before the other is closed, so that what is only in memory is not gone.
        let store = self.place.open().await;
        self.store.close().await;
        Self::over(self.place, store, self.carrier).await
    }

    pub fn register(&self, name: &str, yaml: &str) -> Executions {
        let spec = workflow(&self.fill(yaml));
        steps::register(&self.host, &self.reach, name, &spec).unwrap_or_else(|error| panic!("{error}"));
        Executions::new(&self.host, name).unwrap()
    }

    /// Puts the carrier's address where it belongs.
    pub fn fill(&self, yaml: &str) -> String {
        yaml.replace("http://carrier.shop.svc", &format!("http://{}", self.carrier.address))
    }

    /// A test in no time, with the real entities.
    pub fn test(&self, yaml: &str) -> Test {
        Test::new(Written::new("test", &workflow(&self.fill(yaml)), self.reach.clone()).unwrap())
    }

    pub async fn restock(&self, item: &str, count: i64) {
        let client = InventoryClient::new(&self.host).unwrap();
        client.restock(item, &Restock { count }).await.unwrap();
    }

    pub async fn stock(&self, item: &str) -> i64 {
        InventoryClient::new(&self.host).unwrap().get(item).await.unwrap()
    }

    /// What was charged, and how often the account was changed.
    pub async fn account(&self, order: &str) -> (i64, i64) {
        PaymentsClient::new(&self.host).unwrap().get(order).await.unwrap()
    }

    pub fn shipped(&self) -> Vec<String> {
        self.carrier.keys()
    }
}

impl Service {
    /// The keys under which it was asked, each once.
    pub fn keys(&self) -> Vec<String> {
        let key =
            |asked: &crate::service::Asked| asked.headers["idempotency-key"].to_str().unwrap().to_owned();
        let mut keys: Vec<_> = self.asked().iter().map(key).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

pub fn json_answer(body: &Value) -> Response<Full<Bytes>> {
    let mut answer = answer(200, body.to_string());
    answer.headers_mut().insert("content-type", "application/json".parse().unwrap());
    answer
}

pub fn named(id: &str) -> Terms {
    Terms { key: Some(Key::Raw(id.to_owned())), ..Terms::default() }
}

pub fn output(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Success(value) => codec::to_json(&value).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The reason and the message of a failure.
pub fn failure(outcome: Outcome) -> (String, String) {
    match outcome {
        Outcome::Failure(failure) => (failure.kind, failure.message),
        Outcome::Defect(defect) => (defect.kind, defect.message),
        Outcome::Success(value) => panic!("{:?}", codec::to_json(&value)),
    }
}

pub fn brief(report: &Report) -> Vec<(&str, StepPhase)> {
    report.steps.iter().map(|step| (step.name.as_str(), step.phase)).collect()
}
