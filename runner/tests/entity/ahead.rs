//! Answers of handlers that ran ahead on a state whose commit failed.

use std::fmt;
use std::sync::Arc;

use cleat_runner::client::Runtime;
use cleat_runner::egress::{self, Egress};
use cleat_runner::handler::{Natives, Plan};
use cleat_runner::message::{EntityAddress, EntityType, codec};
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;
use cleat_runner::store::{Change, StateChange, Write};

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_rejection_computed_on_a_state_that_never_committed_is_computed_again,
    a_reply_that_left_an_uncommitted_state_unchanged_is_computed_again,
    a_persisted_read_of_a_state_that_never_committed_is_computed_again,
    a_volatile_rejection_computed_on_a_state_that_never_committed_is_not_answered,
    a_volatile_read_that_runs_while_the_commit_before_it_fails_is_not_answered,
    a_message_after_a_panic_sees_the_commits_before_it,
    a_cel_rejection_computed_on_a_state_that_never_committed_is_computed_again,
    answers_computed_on_a_state_that_commits_come_in_order,
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Overdrawn {
    balance: i64,
}

impl fmt::Display for Overdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} left", self.balance)
    }
}

#[entity(state = i64)]
struct Account;

#[entity_impl]
impl Account {
    #[rpc(persisted)]
    async fn deposit(&self, balance: &mut i64, amount: i64) -> Result<i64, Never> {
        *balance += amount;
        Ok(*balance)
    }

    #[rpc(persisted)]
    async fn withdraw(&self, balance: &mut i64, amount: i64) -> Result<i64, Overdrawn> {
        if *balance < amount {
            return Err(Overdrawn { balance: *balance });
        }
        *balance -= amount;
        Ok(*balance)
    }

    /// Wants to write, and changes nothing.
    #[rpc(persisted)]
    async fn touch(&self, balance: &mut i64) -> Result<i64, Never> {
        Ok(*balance)
    }

    #[rpc(persisted, effects = "inside")]
    async fn audit(&self, balance: &i64) -> Result<i64, Never> {
        Ok(*balance)
    }

    #[rpc]
    async fn afford(&self, balance: &i64, amount: i64) -> Result<i64, Overdrawn> {
        if *balance < amount {
            return Err(Overdrawn { balance: *balance });
        }
        Ok(*balance)
    }

    /// Takes long enough for the commit before it to fail meanwhile.
    #[rpc]
    async fn ponder(&self, balance: &i64) -> Result<i64, Never> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(*balance)
    }

    #[rpc]
    async fn break_down(&self, balance: &i64) -> Result<(), Never> {
        assert!(*balance < 0, "this handler panics on purpose");
        Ok(())
    }
}

/// An account whose instance in memory has a balance of 100. The database has 500 in a later version, so the next commit conflicts.
async fn overtaken(place: Place) -> (World, AccountClient) {
    let world = World::new(place).await;
    let client = Account.register(&world.host).unwrap();
    assert_eq!(client.deposit("a", &100).await.unwrap(), 100);
    world.overtake("account", codec::encode(&500_i64).unwrap()).await;
    (world, client)
}

impl World {
    /// Replaces the first version of the state of entity `a` behind the host's back.
    async fn overtake(&self, entity_type: &str, value: Vec<u8>) {
        let address = EntityAddress::new(entity_type, "a").unwrap();
        let map = self.store.maps().iter().find(|map| *map.group() == GroupName::default()).unwrap();
        let shard = map.shard_at(address.slot());
        let fence = self.fences.iter().find(|fence| fence.shard == shard).unwrap().clone();
        let state = StateChange { address, group: GroupName::default(), base: 1, value: value.into() };
        self.store.commit(Write::one(fence, Change::State(state))).await.unwrap();
    }
}

async fn a_rejection_computed_on_a_state_that_never_committed_is_computed_again(place: Place) {
    let (_world, client) = overtaken(place).await;
    // The second one runs on the 20 that the first leaves of the 100.
    let (first, second) = tokio::join!(client.withdraw("a", &80), client.withdraw("a", &80));
    assert_eq!(first.unwrap(), 420);
    assert_eq!(second.unwrap(), 340);
    // What is rejected in truth is rejected.
    let rejected = client.withdraw("a", &1000).await.unwrap_err();
    assert!(matches!(&rejected, client::Error::Refused(Overdrawn { balance: 340 })), "{rejected:?}");
}

async fn a_reply_that_left_an_uncommitted_state_unchanged_is_computed_again(place: Place) {
    let (_world, client) = overtaken(place).await;
    let (first, second) = tokio::join!(client.withdraw("a", &80), client.touch("a"));
    assert_eq!((first.unwrap(), second.unwrap()), (420, 420));
}

async fn a_persisted_read_of_a_state_that_never_committed_is_computed_again(place: Place) {
    let (_world, client) = overtaken(place).await;
    let (first, second) = tokio::join!(client.withdraw("a", &80), client.audit("a"));
    assert_eq!((first.unwrap(), second.unwrap()), (420, 420));
}

async fn a_volatile_rejection_computed_on_a_state_that_never_committed_is_not_answered(place: Place) {
    let (_world, client) = overtaken(place).await;
    let (first, second) = tokio::join!(client.withdraw("a", &80), client.afford("a", &80));
    assert_eq!(first.unwrap(), 420);
    // A volatile message is handled at most once, so its caller decides whether to ask again.
    let lost = second.unwrap_err();
    assert!(matches!(&lost, client::Error::Entity(entity::Error::Lost(_))), "{lost:?}");
    assert_eq!(client.afford("a", &80).await.unwrap(), 420);
}

async fn a_volatile_read_that_runs_while_the_commit_before_it_fails_is_not_answered(place: Place) {
    let (_world, client) = overtaken(place).await;
    let (first, second) = tokio::join!(client.withdraw("a", &80), client.ponder("a"));
    assert_eq!(first.unwrap(), 420);
    let lost = second.unwrap_err();
    assert!(matches!(&lost, client::Error::Entity(entity::Error::Lost(_))), "{lost:?}");
}

async fn a_message_after_a_panic_sees_the_commits_before_it(place: Place) {
    let world = World::new(place).await;
    let client = Account.register(&world.host).unwrap();
    for round in 1..=20 {
        let (deposited, broken, withdrawn) =
            tokio::join!(client.deposit("a", &10), client.break_down("a"), client.withdraw("a", &10));
        assert_eq!(deposited.unwrap(), 10, "round {round}");
        broken.unwrap_err();
        assert_eq!(withdrawn.unwrap(), 0, "round {round}");
    }
}

async fn answers_computed_on_a_state_that_commits_come_in_order(place: Place) {
    let world = World::new(place).await;
    let client = Account.register(&world.host).unwrap();
    let (deposited, rejected, seen, left, afforded) = tokio::join!(
        client.deposit("a", &100),
        client.withdraw("a", &200),
        client.audit("a"),
        client.withdraw("a", &80),
        client.afford("a", &80),
    );
    assert_eq!(deposited.unwrap(), 100);
    assert!(matches!(rejected.unwrap_err(), client::Error::Refused(Overdrawn { balance: 100 })));
    assert_eq!(seen.unwrap(), 100);
    assert_eq!(left.unwrap(), 20);
    assert!(matches!(afforded.unwrap_err(), client::Error::Refused(Overdrawn { balance: 20 })));
}

async fn a_cel_rejection_computed_on_a_state_that_never_committed_is_computed_again(place: Place) {
    let spec: serde_json::Value = serde_yaml::from_str(
        r#"
state: {initial: {balance: 100}}
methods:
- name: withdraw
  cel:
    require: [{that: "state.balance >= input", reason: Overdrawn, message: "only ${state.balance} left"}]
    set: {balance: "${state.balance - input}"}
    output: "${state.balance}"
"#,
    )
    .unwrap();
    let spec = serde_json::from_value(spec).unwrap();
    let egress = Egress::new(egress::Options::default(), Arc::new(egress::Fixed::default()));
    let world = World::new(place).await;
    world.host.register(Plan::of("purse", &spec).unwrap().entity(&Natives::new(), &egress).unwrap()).unwrap();
    let client = client::EntityClient::new(world.host.router(), EntityType::new("purse").unwrap());
    let withdraw = |amount: i64| client.call::<i64, serde_json::Value>("a", "withdraw", &amount);
    assert_eq!(withdraw(0).await.unwrap(), 100);
    world.overtake("purse", codec::encode(&serde_json::json!({"balance": 500})).unwrap()).await;
    let (first, second) = tokio::join!(withdraw(80), withdraw(80));
    assert_eq!((first.unwrap(), second.unwrap()), (420, 340));
}
