//! Ids, keys and errors.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cleat_runner::client::Error;
use cleat_runner::entity;
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    of_many_callers_with_one_key_none_hangs,
    a_request_that_failed_is_told_as_such_to_whoever_asks_again,
    errors_are_told_apart_by_type_and_reason,
);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Closed {
    until: u8,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "closed until {}", self.until)
    }
}

#[entity]
#[derive(Clone, Default)]
struct Shop {
    runs: Arc<AtomicU32>,
}

#[entity_impl]
impl Shop {
    #[rpc(persisted)]
    async fn buy(&self, number: u32) -> Result<u32, Closed> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        if number == 0 { Err(Closed { until: 9 }) } else { Ok(number) }
    }
}

async fn shop(place: Place) -> (World, Shop, ShopClient) {
    let (world, shop) = (World::new(place).await, Shop::default());
    let client = shop.clone().register(&world.host).unwrap();
    (world, shop, client)
}

#[tokio::test]
async fn calls_of_several_runners_never_share_an_id() {
    let place = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    let mut ids = HashSet::new();
    const RUNNERS: usize = 4;
    const CALLS: usize = 50_000;
    for _ in 0..RUNNERS {
        let world = World::new(Place::Postgres(place.clone())).await;
        ids.extend((0..CALLS).map(|_| world.host.next_id().unwrap()));
    }
    assert_eq!(ids.len(), RUNNERS * CALLS);
}

async fn of_many_callers_with_one_key_none_hangs(place: Place) {
    let (_world, shop, client) = shop(place).await;
    for round in 1..=30 {
        let key = format!("round-{round}");
        // They come before, while and after the first of them is handled.
        let callers = (0..20u32).map(|caller| {
            let (client, key) = (client.clone(), key.clone());
            async move {
                for _ in 0..caller % 5 {
                    tokio::task::yield_now().await;
                }
                client.buy("one", &round).key(&key).await
            }
        });
        for answer in futures::future::join_all(callers).await {
            assert_eq!(answer.unwrap(), round);
        }
        assert_eq!(shop.runs.load(Ordering::SeqCst), round);
    }
}

async fn a_request_that_failed_is_told_as_such_to_whoever_asks_again(place: Place) {
    let (_world, shop, client) = shop(place).await;
    for _ in 0..2 {
        let told = client.buy("one", &0).key("order").await.unwrap_err();
        assert_eq!(told.refused(), Some(Closed { until: 9 }));
    }
    assert_eq!(shop.runs.load(Ordering::SeqCst), 1);
    // The key is for what was asked; whoever wants another try has another key.
    assert_eq!(client.buy("one", &7).key("another order").await.unwrap(), 7);
}

async fn errors_are_told_apart_by_type_and_reason(place: Place) {
    let (world, _, client) = shop(place).await;
    let refused = client.buy("one", &0).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Closed { until: 9 })), "{refused}");
    client.buy("one", &1).key("order").await.unwrap();
    let reused = client.buy("one", &2).key("order").await.unwrap_err();
    assert!(
        matches!(&reused, Error::Entity(entity::Error::Store(cleat_runner::store::Error::KeyReused { .. }))),
        "{reused}"
    );
    assert_eq!(reused.reason(), Some("KeyReused"));
    let router = world.host.router();
    let other = EntityClient::new(router, EntityType::new("shop").unwrap());
    let unknown = other.call::<(), Never>("one", "sell", &()).await.unwrap_err();
    assert!(
        matches!(&unknown, Error::Entity(entity::Error::UnknownMethod { method, .. }) if method == "sell")
    );
    assert_eq!(unknown.reason(), Some("UnknownMethod"));
}
