//! What a handler knows about its message, and what it sends.

use std::time::Duration;

use cleat_runner::message::Snowflake;
use cleat_runner::prelude::*;
use tokio::sync::mpsc;

use crate::shop::{Inventory, InventoryClient};
use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_handler_knows_its_request_its_attempt_and_its_fence,
    sends_commit_with_the_reply,
    a_handler_that_fails_has_sent_nothing,
    sends_with_one_key_are_one_request,
    a_send_that_cannot_be_made_fails_its_handler,
    an_entity_can_send_to_its_own_private_methods,
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Seen {
    request: Snowflake,
    attempt: i32,
    epoch: i64,
    address: String,
    header: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Shipment {
    item: String,
    count: i64,
    key: Option<String>,
    fail: bool,
}

#[entity(state = u32)]
#[derive(Clone)]
struct Supplier {
    inventory: InventoryClient,
    noted: mpsc::UnboundedSender<u32>,
}

#[entity_impl]
impl Supplier {
    #[rpc(persisted, attempts = 5, backoff = "1ms")]
    async fn look(&self, context: &mut Context) -> Result<Seen, OrRetry<String>> {
        if context.attempt() < 2 {
            return Err(OrRetry::retry("not yet"));
        }
        Ok(Seen {
            request: context.request(),
            attempt: context.attempt(),
            epoch: context.fence().epoch.get(),
            address: context.address().to_string(),
            header: context.headers().get("who").cloned(),
        })
    }

    #[rpc(persisted)]
    async fn ship(
        &self,
        context: &mut Context,
        shipments: &mut u32,
        request: Shipment,
    ) -> Result<u32, String> {
        *shipments += 1;
        let restock = self.inventory.restock(&request.item, &request.count);
        context.send(match &request.key {
            Some(key) => restock.key(key),
            None => restock,
        });
        if request.fail { Err("the truck broke down".to_owned()) } else { Ok(*shipments) }
    }

    #[rpc(persisted)]
    async fn remind(&self, context: &mut Context, number: u32) -> Result<(), Never> {
        let address = context.address().clone();
        context.send_to(address, "note", &number, None).unwrap();
        Ok(())
    }

    #[rpc(persisted)]
    #[private]
    async fn note(&self, number: u32) -> Result<(), Never> {
        let _ = self.noted.send(number);
        Ok(())
    }
}

struct Shop {
    _world: World,
    inventory: InventoryClient,
    supplier: SupplierClient,
    noted: mpsc::UnboundedReceiver<u32>,
}

async fn shop(place: Place) -> Shop {
    let world = World::new(place).await;
    let inventory = Inventory.register(&world.host).unwrap();
    let (sender, noted) = mpsc::unbounded_channel();
    let supplier = Supplier { inventory: inventory.clone(), noted: sender };
    let supplier = supplier.register(&world.host).unwrap();
    Shop { _world: world, inventory, supplier, noted }
}

fn shipment(count: i64) -> Shipment {
    Shipment { item: "apples".into(), count, key: None, fail: false }
}

/// Waits until so many are on hand. Sends are one way, so nobody is told.
async fn on_hand(inventory: &InventoryClient, wanted: i64) {
    let there = async {
        while inventory.get("apples").await.unwrap().on_hand != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), there).await.unwrap();
}

async fn a_handler_knows_its_request_its_attempt_and_its_fence(place: Place) {
    let shop = shop(place).await;
    let pending = shop.supplier.look("s").header("who", "me").start().await.unwrap();
    let id = pending.id().id;
    let seen = pending.await.unwrap();
    let header = Some("me".to_owned());
    assert_eq!(seen, Seen { request: id, attempt: 2, epoch: 1, address: "supplier/s".into(), header });
}

async fn sends_commit_with_the_reply(place: Place) {
    let shop = shop(place).await;
    assert_eq!(shop.supplier.ship("s", &shipment(5)).await.unwrap(), 1);
    on_hand(&shop.inventory, 5).await;
}

async fn a_handler_that_fails_has_sent_nothing(place: Place) {
    let shop = shop(place).await;
    let failing = Shipment { fail: true, ..shipment(5) };
    let error = shop.supplier.ship("s", &failing).await.unwrap_err();
    assert_eq!(error.refused().as_deref(), Some("the truck broke down"));
    // What is sent afterwards arrives, and nothing was before it.
    assert_eq!(shop.supplier.ship("s", &shipment(7)).await.unwrap(), 1);
    on_hand(&shop.inventory, 7).await;
}

async fn sends_with_one_key_are_one_request(place: Place) {
    let shop = shop(place).await;
    let keyed = Shipment { key: Some("truck-1".into()), ..shipment(5) };
    assert_eq!(shop.supplier.ship("s", &keyed).await.unwrap(), 1);
    on_hand(&shop.inventory, 5).await;
    assert_eq!(shop.supplier.ship("s", &keyed).await.unwrap(), 2);
    assert_eq!(shop.supplier.ship("s", &shipment(1)).await.unwrap(), 3);
    on_hand(&shop.inventory, 6).await;
}

async fn a_send_that_cannot_be_made_fails_its_handler(place: Place) {
    let shop = shop(place).await;
    let nowhere = Shipment { item: String::new(), ..shipment(5) };
    let error = shop.supplier.ship("s", &nowhere).await.unwrap_err();
    assert_eq!(error.reason(), Some("InvalidAddress"));
    assert_eq!(shop.supplier.ship("s", &shipment(5)).await.unwrap(), 1);
}

async fn an_entity_can_send_to_its_own_private_methods(place: Place) {
    let mut shop = shop(place).await;
    shop.supplier.remind("s", &7).await.unwrap();
    assert_eq!(shop.noted.recv().await, Some(7));
}
