//! Questions that a handler asks, and their answers when it is run again.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cleat_runner::entity::Options;
use cleat_runner::prelude::*;
use cleat_runner::store::Progress;
use tokio::sync::Semaphore;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_handler_asks_another_entity_and_gets_its_reply,
    an_error_of_the_other_arrives_as_it_was,
    a_handler_that_is_run_again_asks_the_same_questions_and_gets_the_same_answers,
    a_volatile_method_is_simply_asked_again,
    several_questions_can_be_asked_at_once,
    a_protected_method_is_open_to_entities,
    a_message_is_stored_before_its_handler_asks,
    a_call_goes_on_after_a_crash_where_it_was,
    an_interrupt_reaches_the_one_who_was_asked,
    nobody_is_asked_while_a_transaction_is_open,
    a_rerun_that_asks_something_else_is_told_so,
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Declined {
    Broke { short: i64 },
    Closed,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broke { short } => write!(f, "{short} short"),
            Self::Closed => write!(f, "closed"),
        }
    }
}

/// What several types have, for each other only.
#[rpc_group]
struct Sealed;

#[rpc_group_impl]
impl Sealed {
    #[rpc]
    #[protected]
    async fn seal(&self, text: String) -> Result<String, Never> {
        Ok(format!("sealed {text}"))
    }
}

/// The one who is asked.
#[entity(name = "bank", state = i64)]
#[derive(Clone)]
struct Bank {
    asked: Arc<AtomicUsize>,
    begun: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

#[entity_impl(rpc_groups(Sealed))]
impl Bank {
    #[rpc(persisted)]
    pub async fn pay(&self, balance: &mut i64, amount: i64) -> Result<i64, Declined> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if amount > 100 {
            return Err(Declined::Broke { short: amount - 100 });
        }
        *balance += amount;
        Ok(*balance)
    }

    #[rpc]
    pub async fn rate(&self) -> Result<usize, Never> {
        Ok(self.asked.fetch_add(1, Ordering::Relaxed))
    }

    #[rpc(persisted)]
    #[protected]
    async fn audit(&self, balance: &i64) -> Result<i64, Never> {
        Ok(*balance)
    }

    #[rpc(persisted)]
    pub async fn ponder(&self) -> Result<(), Never> {
        self.begun.add_permits(1);
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
        Ok(())
    }

    #[rpc]
    pub async fn balance(&self, balance: &i64) -> Result<i64, Never> {
        Ok(*balance)
    }
}

/// The one who asks.
#[entity(name = "order", state = Vec<i64>)]
#[derive(Clone)]
struct Order {
    bank: BankClient,
    answers: Arc<Mutex<HashMap<i32, Vec<i64>>>>,
    begun: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

#[entity_impl]
impl Order {
    /// Pays twice; the first attempt fails after that.
    #[rpc(persisted, backoff = "1ms")]
    pub async fn buy(
        &self,
        paid: &mut Vec<i64>,
        context: &mut Context,
        amount: i64,
    ) -> Result<Vec<i64>, OrRetry<Declined>> {
        for _ in 0..2 {
            let answer = context.call(self.bank.pay("main", &amount)).await;
            paid.push(answer.map_err(|error| match error {
                client::Error::Refused(declined) => OrRetry::Failed(declined),
                client::Error::Entity(error) => OrRetry::retry(error),
            })?);
        }
        self.answers.lock().unwrap().insert(context.attempt(), paid.clone());
        if context.attempt() == 0 {
            return Err(OrRetry::retry("once more"));
        }
        Ok(paid.clone())
    }

    #[rpc(persisted, backoff = "1ms")]
    pub async fn guess(&self, context: &mut Context) -> Result<usize, OrRetry<String>> {
        let rate = context.call(self.bank.rate("main")).await.map_err(OrRetry::retry)?;
        if context.attempt() < 2 { Err(OrRetry::retry("not yet")) } else { Ok(rate) }
    }

    #[rpc]
    pub async fn both(&self, context: &mut Context) -> Result<i64, String> {
        let (one, two) = (context.call(self.bank.pay("a", &1)), context.call(self.bank.pay("b", &2)));
        let (one, two) = tokio::join!(one, two);
        Ok(one.map_err(|error| error.to_string())? + two.map_err(|error| error.to_string())?)
    }

    #[rpc]
    pub async fn audited(&self, context: &mut Context) -> Result<i64, String> {
        let sealed = context.call(self.bank.inside().seal("main", &"it".to_owned())).await;
        assert_eq!(sealed.map_err(|error| error.to_string())?, "sealed it");
        let audit = context.call(self.bank.inside().audit("main")).await;
        audit.map_err(|error| error.to_string())
    }

    /// Says of itself that all its effects are inside, which a call is not.
    #[rpc(persisted, effects = "inside")]
    pub async fn hold(&self, context: &mut Context) -> Result<(), OrRetry<String>> {
        context.call(self.bank.pay("main", &7)).await.map_err(OrRetry::retry)?;
        self.begun.add_permits(1);
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
        Ok(())
    }

    #[rpc(persisted)]
    pub async fn wait(&self, context: &mut Context) -> Result<(), OrRetry<String>> {
        context.call(self.bank.ponder("main")).await.map_err(OrRetry::retry)
    }

    #[rpc(persisted)]
    pub async fn mix(&self, context: &mut Context) -> Result<(String, String), OrRetry<String>> {
        let early = context.call(self.bank.pay("main", &1));
        let begun = context.tx().await.err().map(|error| error.reason().to_owned());
        early.await.map_err(OrRetry::retry)?;
        context.tx().await.map_err(OrRetry::retry)?;
        let late = context.call(self.bank.pay("main", &1)).await;
        let late = late.err().and_then(|error| error.reason().map(str::to_owned));
        Ok((begun.unwrap_or_default(), late.unwrap_or_default()))
    }

    #[rpc(persisted, backoff = "1ms")]
    pub async fn waver(&self, context: &mut Context) -> Result<String, OrRetry<String>> {
        let amount = i64::from(context.attempt());
        let answer = context.call(self.bank.pay("main", &amount)).await;
        match answer {
            Ok(_) => Err(OrRetry::retry("once more")),
            Err(error) => Ok(error.reason().unwrap_or_default().to_owned()),
        }
    }
}

struct Rig {
    world: World,
    bank: Bank,
    order: Order,
    orders: OrderClient,
}

fn semaphore() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

impl Rig {
    async fn new(place: Place) -> Self {
        let world = World::new(place).await;
        let bank = Bank { asked: Arc::default(), begun: semaphore(), open: semaphore() };
        let client = bank.clone().register(&world.host, Sealed).unwrap();
        let order = Order { bank: client, answers: Arc::default(), begun: semaphore(), open: semaphore() };
        let orders = order.clone().register(&world.host).unwrap();
        Self { world, bank, order, orders }
    }
}

async fn a_handler_asks_another_entity_and_gets_its_reply(place: Place) {
    let rig = Rig::new(place).await;
    assert_eq!(rig.orders.both("o").await.unwrap(), 3);
    assert_eq!(rig.order.bank.balance("b").await.unwrap(), 2);
}

async fn an_error_of_the_other_arrives_as_it_was(place: Place) {
    let rig = Rig::new(place).await;
    let error = rig.orders.buy("o", &120).await.unwrap_err();
    assert_eq!(error.refused(), Some(Declined::Broke { short: 20 }));
    // Who does not know the type is told the variant.
    let orders: &EntityClient = rig.orders.as_ref();
    let error = orders.call::<Vec<i64>, u8>("p", "buy", &120).await.unwrap_err();
    assert_eq!((error.reason(), error.to_string().as_str()), (Some("Broke"), "Broke: 20 short"));
}

async fn a_handler_that_is_run_again_asks_the_same_questions_and_gets_the_same_answers(place: Place) {
    let rig = Rig::new(place).await;
    assert_eq!(rig.orders.buy("o", &10).await.unwrap(), [10, 20]);
    assert_eq!(rig.bank.asked.load(Ordering::Relaxed), 2, "each question was answered once");
    assert_eq!(rig.order.bank.balance("main").await.unwrap(), 20);
    let answers = rig.order.answers.lock().unwrap().clone();
    assert_eq!(answers, HashMap::from([(0, vec![10, 20]), (1, vec![10, 20])]));
    // Another request asks questions of its own.
    assert_eq!(rig.orders.buy("other", &10).await.unwrap(), [30, 40]);
}

async fn a_volatile_method_is_simply_asked_again(place: Place) {
    let rig = Rig::new(place).await;
    assert_eq!(rig.orders.guess("o").await.unwrap(), 2);
}

async fn several_questions_can_be_asked_at_once(place: Place) {
    let rig = Rig::new(place).await;
    assert_eq!(rig.orders.both("o").await.unwrap(), 3);
    assert_eq!(rig.orders.both("o").await.unwrap(), 6, "a volatile caller has no stable key");
}

async fn a_protected_method_is_open_to_entities(place: Place) {
    let rig = Rig::new(place).await;
    rig.order.bank.pay("main", &5).await.unwrap();
    assert_eq!(rig.orders.audited("o").await.unwrap(), 5);
    let bank: &EntityClient = rig.order.bank.as_ref();
    let outside = bank.call::<i64, Never>("main", "audit", &()).await.unwrap_err();
    assert_eq!(outside.reason(), Some("NotPermitted"));
}

async fn a_message_is_stored_before_its_handler_asks(place: Place) {
    let rig = Rig::new(place).await;
    let asked = tokio::spawn({
        let orders = rig.orders.clone();
        async move { orders.hold("o").key("k").await }
    });
    rig.order.begun.acquire().await.unwrap().forget();
    let orders: &EntityClient = rig.orders.as_ref();
    let pending = orders.keyed::<(), String>("o", "hold", "k").await.unwrap().expect("it is stored");
    let progress = rig.world.store.progress(pending.id().id).await.unwrap();
    assert_eq!(progress, Progress::Open);
    rig.order.open.add_permits(1);
    asked.await.unwrap().unwrap();
    pending.await.unwrap();
}

/// The process goes away after the call and before the handler ends; the next one runs it again.
async fn a_call_goes_on_after_a_crash_where_it_was(place: Place) {
    let rig = Rig::new(place).await;
    let pending = rig.orders.hold("o").start().await.unwrap();
    rig.order.begun.acquire().await.unwrap().forget();
    let id = pending.id().clone();
    let Rig { world, bank, order, orders } = rig;
    drop((pending, orders));
    let host = world.host.clone();
    host.shutdown(Duration::ZERO).await;
    let world = world.restart(Options::default()).await;
    let client = bank.clone().register(&world.host, Sealed).unwrap();
    let orders = Order { bank: client.clone(), ..order.clone() }.register(&world.host).unwrap();
    order.begun.acquire().await.unwrap().forget();
    order.open.add_permits(1);
    let orders: &EntityClient = orders.as_ref();
    orders.pending::<(), String>(id).await.unwrap();
    assert_eq!(bank.asked.load(Ordering::Relaxed), 1, "the answer of the first run was kept");
    assert_eq!(client.balance("main").await.unwrap(), 7);
}

async fn an_interrupt_reaches_the_one_who_was_asked(place: Place) {
    let rig = Rig::new(place).await;
    let pending = rig.orders.wait("o").start().await.unwrap();
    rig.bank.begun.acquire().await.unwrap().forget();
    assert!(pending.interrupt().await.unwrap());
    assert_eq!(pending.await.unwrap_err().reason(), Some("Interrupted"));
    // It is free again, though nobody opened it.
    let next = tokio::spawn({
        let orders = rig.orders.clone();
        async move { orders.wait("o").await }
    });
    rig.bank.begun.acquire().await.unwrap().forget();
    rig.bank.open.add_permits(1);
    next.await.unwrap().unwrap();
}

async fn nobody_is_asked_while_a_transaction_is_open(place: Place) {
    let rig = Rig::new(place).await;
    let (begun, late) = rig.orders.mix("o").await.unwrap();
    assert_eq!((begun.as_str(), late.as_str()), ("CallInTransaction", "CallInTransaction"));
    assert_eq!(rig.order.bank.balance("main").await.unwrap(), 1);
}

async fn a_rerun_that_asks_something_else_is_told_so(place: Place) {
    let rig = Rig::new(place).await;
    assert_eq!(rig.orders.waver("o").await.unwrap(), "KeyReused");
}
