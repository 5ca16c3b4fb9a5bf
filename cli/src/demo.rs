//! `cleat dev --demo`: an inventory that takes reservations.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use cleat_runner::prelude::*;

/// What an inventory remembers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stock {
    on_hand: i64,
    reserved: BTreeMap<String, i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reserve {
    order: String,
    count: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct OutOfStock {
    left: i64,
}

impl fmt::Display for OutOfStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} left", self.left)
    }
}

/// What is on a shelf, and for whom it is kept.
#[entity(name = "inventory", state = Stock)]
struct Inventory;

#[entity_impl]
impl Inventory {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut Stock, count: i64) -> Result<i64, Never> {
        stock.on_hand += count;
        Ok(stock.on_hand)
    }

    #[rpc(persisted)]
    pub async fn reserve(&self, stock: &mut Stock, request: Reserve) -> Result<i64, OutOfStock> {
        if stock.on_hand < request.count {
            return Err(OutOfStock { left: stock.on_hand });
        }
        stock.on_hand -= request.count;
        *stock.reserved.entry(request.order).or_default() += request.count;
        Ok(stock.on_hand)
    }

    #[rpc]
    pub async fn get(&self, stock: &Stock) -> Result<i64, Never> {
        Ok(stock.on_hand)
    }
}

/// Restocks, reserves, reserves again under the same key, asks for too much, and then lets many come at once.
pub async fn run(host: &Host) -> Result<()> {
    let inventory = Inventory.register(host)?;
    let before = inventory.get("apples").await?;
    println!("  inventory/apples has {before} on hand");
    let restocked = inventory.restock("apples", &10).await?;
    println!("  restock 10                 -> {restocked}: state, message and reply in one commit");
    // Another order for each run of the demo, so that the second finds the data of the first.
    let order = format!("order-{:x}", host.next_id()?.get());
    let reserve = Reserve { order: order.clone(), count: 3 };
    let reserved = inventory.reserve("apples", &reserve).key(&order).await?;
    println!("  reserve 3                  -> {reserved}: kept for {order}");
    let again = inventory.reserve("apples", &reserve).key(&order).await?;
    ensure!(again == reserved, "a request that came twice was handled twice");
    println!("  the same, under its key    -> {again}: handled once, the reply was kept");
    let greedy = Reserve { order: "order-greedy".to_owned(), count: 1_000_000 };
    match inventory.reserve("apples", &greedy).await {
        Ok(left) => bail!("a million apples were reserved, and {left} are left"),
        Err(client::Error::Refused(refused)) => {
            println!("  reserve 1000000            -> refused, {refused}: nothing changed");
        }
        Err(error) => return Err(error.into()),
    }
    let (crowd, begun) = (1_000_u32, Instant::now());
    let calls = (0..crowd).map(|number| {
        let inventory = &inventory;
        async move { inventory.restock(format!("shelf-{number}"), &1).await }
    });
    futures::future::try_join_all(calls).await?;
    let rate = f64::from(crowd) / begun.elapsed().as_secs_f64();
    println!("  restock {crowd} shelves at once -> {rate:.0} durable calls a second");
    let after = inventory.get("apples").await?;
    ensure!(after == before + 7, "{after} apples are left, and there should be {}", before + 7);
    println!("  inventory/apples has {after} on hand; {} entities are in memory", host.active_entities());
    Ok(())
}
