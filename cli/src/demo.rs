//! `cleat dev --demo`: an inventory that takes reservations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use cleat_runner::entity::{
    Access, Call, Definition, Delivered, Entity, Handler, HandlerError, Host, Method, Request, StateType,
};
use cleat_runner::message::{
    EntityAddress, EntityType, Envelope, IdempotencyKey, Outcome, Uninterruptible, codec,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What an inventory remembers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stock {
    on_hand: i64,
    reserved: BTreeMap<String, i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Reserve {
    order: String,
    count: i64,
}

/// The type: what can be asked.
struct Inventory(Definition);

impl Inventory {
    fn new() -> Result<Self> {
        let definition = Definition::new(EntityType::new("inventory")?)
            .method("restock", Method::persisted().with_state(Access::Write))
            .method("reserve", Method::persisted().with_state(Access::Write))
            .method("get", Method::volatile().with_state(Access::Read));
        Ok(Self(Definition { state: Some(StateType::of::<Stock>()), ..definition }))
    }
}

impl Entity for Inventory {
    fn definition(&self) -> &Definition {
        &self.0
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        async { Ok(Arc::new(Shelf) as Arc<dyn Handler>) }.boxed()
    }
}

/// One instance.
struct Shelf;

impl Handler for Shelf {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move {
            let reply = match call.method() {
                "restock" => {
                    let count: i64 = call.input()?;
                    let stock = call.state_mut::<Stock>()?;
                    stock.on_hand += count;
                    stock.on_hand
                }
                "reserve" => {
                    let Reserve { order, count } = call.input()?;
                    let stock = call.state_mut::<Stock>()?;
                    if stock.on_hand < count {
                        let message = format!("only {} left", stock.on_hand);
                        return Err(HandlerError::failed("OutOfStock", message));
                    }
                    stock.on_hand -= count;
                    *stock.reserved.entry(order).or_default() += count;
                    stock.on_hand
                }
                _ => call.state::<Stock>()?.on_hand,
            };
            Ok(codec::encode(&reply)?.into())
        }
        .boxed()
    }
}

/// Restocks, reserves, reserves again under the same key, asks for too much, and then lets many come at once.
pub async fn run(host: &Host) -> Result<()> {
    host.register(Arc::new(Inventory::new()?))?;
    let apples = EntityAddress::new("inventory", "apples")?;
    let before: i64 = call(host, &apples, "get", &(), None).await?;
    println!("  inventory/apples has {before} on hand");
    let restocked: i64 = call(host, &apples, "restock", &10, None).await?;
    println!("  restock 10                          -> {restocked}   state, message and reply in one commit");
    // Another order for each run of the demo, so that the second finds the data of the first.
    let order = format!("order-{}", host.next_id()?);
    let reserve = Reserve { order: order.clone(), count: 3 };
    let reserved: i64 = call(host, &apples, "reserve", &reserve, Some(&order)).await?;
    println!("  reserve 3 for {order} -> {reserved}");
    let again: i64 = call(host, &apples, "reserve", &reserve, Some(&order)).await?;
    ensure!(again == reserved, "a request that came twice was handled twice");
    println!("  the same once more, same key        -> {again}   handled once, the reply was kept");
    let greedy = Reserve { order: "order-greedy".to_owned(), count: 1_000_000 };
    match call::<i64, _>(host, &apples, "reserve", &greedy, None).await {
        Ok(left) => bail!("a million apples were reserved, and {left} are left"),
        Err(refused) => {
            println!("  reserve 1000000                     -> {refused:#}   and nothing changed")
        }
    }
    let (crowd, begun) = (1_000_u32, Instant::now());
    let calls = (0..crowd).map(|number| {
        let shelf = EntityAddress::new("inventory", &format!("shelf-{number}"));
        async move { call::<i64, _>(host, &shelf?, "restock", &1, None).await }
    });
    futures::future::try_join_all(calls).await?;
    let rate = f64::from(crowd) / begun.elapsed().as_secs_f64();
    println!("  restock {crowd} shelves at once       -> {rate:.0} durable calls a second");
    let after: i64 = call(host, &apples, "get", &(), None).await?;
    ensure!(after == before + 7, "{after} apples are left, and there should be {}", before + 7);
    println!("  inventory/apples has {after} on hand; {} entities are in memory", host.active_entities());
    Ok(())
}

/// Asks an entity, and waits for the reply.
async fn call<R: DeserializeOwned, I: Serialize>(
    host: &Host,
    address: &EntityAddress,
    method: &str,
    input: &I,
    key: Option<&str>,
) -> Result<R> {
    let envelope = Envelope {
        id: host.next_id()?,
        address: address.clone(),
        method: method.to_owned(),
        payload: codec::encode(input)?.into(),
        persisted: method != "get",
        key: key.map(|key| IdempotencyKey::new(address, method, key.as_bytes())),
        deliver_at: None::<SystemTime>,
        uninterruptible: Uninterruptible::No,
        trace: None,
        headers: BTreeMap::new(),
    };
    match host.request(Request::new(envelope)).await? {
        Delivered::Ended(Outcome::Success(reply)) => {
            codec::decode(&reply).context("the reply cannot be read")
        }
        Delivered::Ended(Outcome::Failure(failure)) => bail!("{}: {}", failure.kind, failure.message),
        Delivered::Ended(Outcome::Defect(defect)) => bail!("{}: {}", defect.kind, defect.message),
        Delivered::Accepted(id) => bail!("request {id} was accepted, but not answered"),
    }
}
