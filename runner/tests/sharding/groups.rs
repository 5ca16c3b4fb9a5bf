//! Shard groups that clients name, and redirects between owners.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleat_runner::client::EntityClient;
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;

use crate::nodes::{World, owner_of, settled, until};
use crate::{Gate, gate, id_of_type_on, within};

/// Lives in a group whose runners alone know it.
#[entity(name = "vault", shard_group = "premium")]
#[derive(Clone, Default)]
struct Vault {
    stored: Arc<AtomicUsize>,
}

#[entity_impl]
impl Vault {
    #[rpc(persisted)]
    pub async fn store(&self, count: u32) -> Result<u32, Never> {
        self.stored.fetch_add(1, Ordering::SeqCst);
        Ok(count + 1)
    }

    #[rpc]
    pub async fn look(&self) -> Result<String, Never> {
        Ok("gold".to_owned())
    }

    #[rpc(stream)]
    pub fn list(&self) -> impl Stream<Item = Result<u32, Never>> {
        futures::stream::iter((0..3).map(Ok))
    }
}

/// Lives in the default group, and asks a vault.
#[entity(name = "relay")]
#[derive(Clone, Default)]
struct Relay;

#[entity_impl]
impl Relay {
    #[rpc(persisted)]
    pub async fn send(&self, context: &mut Context, id: String) -> Result<(), Never> {
        let vault = context.client::<Vault>().unwrap();
        context.send(vault.store(&id, &1));
        Ok(())
    }

    #[rpc(persisted)]
    pub async fn ask(&self, context: &mut Context, id: String) -> Result<u32, Never> {
        let vault = context.client::<Vault>().unwrap();
        Ok(context.call(vault.store(&id, &1)).await.unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shard_group_that_a_client_names_is_used_where_its_type_is_not_known() {
    let world = World::new().await;
    let (default, premium) = (GroupName::default(), GroupName::new("premium").unwrap());
    let groups = [default.clone(), premium.clone()];
    let serving = |group: &GroupName| {
        let group = group.clone();
        move |options: &mut cleat_runner::cluster::Options| {
            options.ownership.groups = BTreeSet::from([group]);
            options.entities.registration = Duration::from_millis(300);
        }
    };
    let front = world.start_in_groups("front", &groups, serving(&default)).await;
    let back = world.start_in_groups("back", &groups, serving(&premium)).await;
    let vault = Vault::default();
    vault.clone().register(&back.node).unwrap();
    let relay = Relay.register(&front.node).unwrap();
    until("both serve", || [&front, &back].iter().all(|r| r.node.ownership().status().borrow().ready)).await;

    // Clients: persisted, volatile, one way, later, streamed.
    let client = EntityClient::new(front.node.router(), EntityType::new("vault").unwrap()).in_group(premium);
    assert_eq!(within(client.call::<u32, Never>("a", "store", &1_u32).into_future()).await.unwrap(), 2);
    let gold = within(client.call::<String, Never>("a", "look", &()).into_future()).await.unwrap();
    assert_eq!(gold, "gold");
    let started = within(client.call::<u32, Never>("b", "store", &2_u32).start()).await.unwrap();
    assert_eq!(within(started.into_future()).await.unwrap(), 3);
    let mut items =
        within(client.call::<cleat_runner::client::Streamed<u32>, Never>("a", "list", &()).stream())
            .await
            .unwrap();
    assert_eq!(within(items.next()).await.unwrap().unwrap(), 0);

    // Handlers of another group: a call, and a message that commits with the reply.
    vault.stored.store(0, Ordering::SeqCst);
    assert_eq!(within(relay.ask("r", &"c".to_owned()).into_future()).await.unwrap(), 2);
    within(relay.send("r", &"d".to_owned()).into_future()).await.unwrap();
    until("the message arrives", || vault.stored.load(Ordering::SeqCst) == 2).await;

    // A type that nobody knows is an error with its name, whoever owns its shard.
    for group in groups {
        let client =
            EntityClient::new(front.node.router(), EntityType::new("vualt").unwrap()).in_group(group);
        let call = client.call::<u32, Never>("a", "store", &1_u32);
        let error = within(call.into_future()).await.unwrap_err();
        assert_eq!(error.reason(), Some("UnknownType"));
        assert!(error.to_string().contains("vualt"), "{error}");
    }
    front.node.shutdown().await;
    back.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_followed_to_the_owner_that_it_names() {
    let world = World::new().await;
    let (a, b) = (world.start("a").await, world.start("b").await);
    // Its routing table stays as it is, so it has nothing but redirects to go by.
    let stale = |options: &mut cleat_runner::cluster::Options| options.patience = Duration::from_secs(10);
    let c = world.start_with("c", stale).await;
    for runner in [&a, &b, &c] {
        Gate::default().register(&runner.node).unwrap();
    }
    settled(&[&a, &b, &c]).await;
    let id = id_of_type_on(&a, &gate());
    let shard = a.node.shard_of(&gate(), &id).unwrap();
    let client = c.node.client(gate());
    assert_eq!(client.call::<u32, Never>(&id, "total", &()).await.unwrap(), 0);
    c.leases.faults().freeze_watches(true);
    a.node.ownership().drain();
    until("the shard has moved", || !a.node.has_shard(&shard)).await;
    assert_eq!(owner_of(&shard, &[&b]).await, 0);
    assert!(
        !matches!(c.node.ownership().locate(&shard), cleat_runner::shard::ownership::Location::There(holder)
        if holder.instance == *b.node.ownership().instance())
    );
    let volatile = client.call::<u32, Never>(&id, "total", &());
    assert_eq!(within(volatile.into_future()).await.unwrap(), 0);
    let persisted = client.call::<u32, Never>(&id, "count", &None::<String>);
    assert_eq!(within(persisted.into_future()).await.unwrap(), 1);
    let started = within(client.call::<u32, Never>(&id, "count", &None::<String>).start()).await.unwrap();
    assert_eq!(within(started.into_future()).await.unwrap(), 2);
    for runner in [a, b, c] {
        runner.node.shutdown().await;
    }
}
