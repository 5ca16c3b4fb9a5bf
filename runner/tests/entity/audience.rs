//! Who may ask for what.

use cleat_runner::prelude::*;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    anybody_may_ask_for_a_public_method,
    only_entities_and_workflows_may_ask_for_a_protected_method,
    nobody_may_ask_for_a_private_method_but_the_entity_itself,
    what_is_not_there_is_refused_by_name,
);

#[entity]
struct Account;

#[entity_impl]
impl Account {
    #[rpc]
    pub async fn query(&self, number: u32) -> Result<u32, Never> {
        // A private method is a function of its own type like any other.
        self.validate(number).await
    }

    #[rpc]
    #[protected]
    pub async fn sync(&self) -> Result<String, Never> {
        Ok("in sync".to_owned())
    }

    #[rpc]
    #[private]
    async fn validate(&self, number: u32) -> Result<u32, Never> {
        Ok(number + 1)
    }
}

async fn anybody_may_ask_for_a_public_method(place: Place) {
    let world = World::new(place).await;
    let client = Account.register(&world.host).unwrap();
    assert_eq!(client.query("a", &1).await.unwrap(), 2);
}

async fn only_entities_and_workflows_may_ask_for_a_protected_method(place: Place) {
    let world = World::new(place).await;
    let client = Account.register(&world.host).unwrap();
    let outside = client.entity().call::<String, Never>("a", "sync", &()).await.unwrap_err();
    assert_eq!(outside.reason(), Some("NotPermitted"));
    assert!(outside.to_string().contains("protected"), "{outside}");
    let inside = client.entity().clone().inside();
    assert_eq!(inside.call::<String, Never>("a", "sync", &()).await.unwrap(), "in sync");
}

async fn nobody_may_ask_for_a_private_method_but_the_entity_itself(place: Place) {
    let world = World::new(place).await;
    let client = Account.register(&world.host).unwrap();
    for client in [client.entity().clone(), client.entity().clone().inside()] {
        let error = client.call::<u32, Never>("a", "validate", &1).await.unwrap_err();
        assert_eq!(error.reason(), Some("NotPermitted"));
    }
}

async fn what_is_not_there_is_refused_by_name(place: Place) {
    let world = World::new(place).await;
    let client = Account.register(&world.host).unwrap();
    let error = client.entity().call::<(), Never>("a", "nonsense", &()).await.unwrap_err();
    assert_eq!(error.reason(), Some("UnknownMethod"));
    let error = client.entity().call::<u32, Never>("a", "query", "text").await.unwrap_err();
    assert_eq!(error.reason(), Some("Malformed"));
}
