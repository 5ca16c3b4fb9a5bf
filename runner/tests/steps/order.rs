//! The order of the examples, as it is written there.

use cleat_crds::{CronJob, EntityType, Workflow, WorkflowType};
use cleat_runner::steps::{self, Definition, World};
use cleat_runner::store::Phase;
use cleat_runner::workflow::{Executions, StepPhase};
use serde_json::{Value, json};

use crate::shop::{Shop, brief, failure, named, output};
use crate::world::{Place, on_both_stores, until};

const ENTITIES: &str = include_str!("../../../examples/orders/entities.yaml");
const WORKFLOW: &str = include_str!("../../../examples/orders/workflow.yaml");
const ORDER: &str = include_str!("../../../examples/orders/order.yaml");
const CRON: &str = include_str!("../../../examples/orders/cron.yaml");

/// The objects in a file.
fn objects<T: serde::de::DeserializeOwned>(yaml: &str) -> Vec<T> {
    let documents = serde_yaml::Deserializer::from_str(yaml);
    let read = documents.map(|document| <Value as serde::Deserialize>::deserialize(document).unwrap());
    read.map(|object| serde_json::from_value(object).unwrap()).collect()
}

fn order_type() -> WorkflowType {
    objects(WORKFLOW).remove(0)
}

/// Quicker than the example, which packs for two seconds, and with a carrier that is there.
fn register(shop: &Shop) -> Executions {
    let yaml = shop.fill(WORKFLOW).replace("sleep: 2s", "sleep: 20ms");
    let order: WorkflowType = objects(&yaml).remove(0);
    steps::register(&shop.host, &shop.reach, "order", &order.spec).unwrap();
    Executions::new(&shop.host, "order").unwrap()
}

fn order(amount: i64, count: i64) -> Value {
    json!({"order": "o-1", "item": "apples", "count": count, "amount": amount, "parcels": [{"kg": 1}, {"kg": 2}]})
}

#[test]
fn the_manifests_are_what_they_should_be() {
    let entities: Vec<EntityType> = objects(ENTITIES);
    let world = entities.iter().fold(World::default(), |world, entity| {
        world.with_entity(entity.metadata.name.as_deref().unwrap(), &entity.spec)
    });
    assert_eq!(steps::check("order", &Definition::from(&order_type().spec), Some(&world)), []);
    let [started] = &objects::<Workflow>(ORDER)[..] else { panic!("one order") };
    assert_eq!(started.spec.type_.as_deref(), Some("order"));
    assert_eq!(started.metadata.generate_name.as_deref(), Some("order-"));
    let [cron] = &objects::<CronJob>(CRON)[..] else { panic!("one cron") };
    assert_eq!(cron.spec.schedule, "0 3 * * *");
}

on_both_stores!(
    an_order_is_reserved_charged_packed_and_shipped,
    an_order_of_too_much_is_refused,
    a_dear_order_waits_for_approval,
    an_order_that_is_cancelled_is_undone,
);

async fn an_order_is_reserved_charged_packed_and_shipped(place: Place) {
    let shop = Shop::new(place).await;
    shop.restock("apples", 10).await;
    let orders = register(&shop);
    let (id, _) = orders.start(&order(1200, 3), &named("o-1")).await.unwrap();
    assert_eq!(output(orders.join(&id).await.unwrap()), json!({"order": "o-1", "receipt": "r-1200"}));
    assert_eq!((shop.stock("apples").await, shop.account("o-1").await), (7, (1200, 1)));
    let run = orders.describe(&id).await.unwrap().run;
    assert_eq!(shop.shipped(), [format!("{run}:parcels[0].ship"), format!("{run}:parcels[1].ship")]);
    let mut parcels: Vec<Value> =
        shop.carrier.asked().iter().map(|asked| serde_json::from_slice(&asked.body).unwrap()).collect();
    parcels.sort_by_key(ToString::to_string);
    assert_eq!(parcels, [json!({"kg": 1}), json!({"kg": 2})]);
    let report = orders.report(&id).await.unwrap();
    assert_eq!(report.step, "5/5");
    assert_eq!(
        brief(&report),
        [
            ("reserve", StepPhase::Completed),
            ("charge", StepPhase::Completed),
            ("approval", StepPhase::Skipped),
            ("pack", StepPhase::Completed),
            ("parcels", StepPhase::Completed),
            ("parcels[0].ship", StepPhase::Completed),
            ("parcels[1].ship", StepPhase::Completed),
        ]
    );
    assert_eq!(report.steps[0].attempts, 1);
    assert!(report.steps.iter().all(|step| step.started.is_some() && step.ended.is_some()));
}

async fn an_order_of_too_much_is_refused(place: Place) {
    let shop = Shop::new(place).await;
    shop.restock("apples", 2).await;
    let orders = register(&shop);
    let (id, _) = orders.start(&order(1200, 3), &named("o-1")).await.unwrap();
    let (reason, message) = failure(orders.join(&id).await.unwrap());
    assert_eq!((reason.as_str(), message.as_str()), ("OutOfStock", "only 2 left"));
    assert_eq!((shop.stock("apples").await, shop.account("o-1").await), (2, (0, 0)));
    let report = orders.report(&id).await.unwrap();
    assert_eq!((report.step.as_str(), report.steps[0].phase), ("0/5", StepPhase::Failed));
    assert_eq!(report.steps[0].message.as_deref(), Some("OutOfStock: only 2 left"));
    let missing = orders.start(&json!({"order": "o-2"}), &named("o-2")).await.unwrap_err();
    assert_eq!(missing.reason(), "InvalidInput");
    assert!(missing.to_string().contains("item"), "{missing}");
}

async fn a_dear_order_waits_for_approval(place: Place) {
    let shop = Shop::new(place).await;
    shop.restock("apples", 10).await;
    let orders = register(&shop);
    let (id, _) = orders.start(&order(20_000, 3), &named("o-1")).await.unwrap();
    until("it waits", || async { orders.report(&id).await.unwrap().step == "2/5" }).await;
    let report = orders.report(&id).await.unwrap();
    assert_eq!((report.steps[2].name.as_str(), report.steps[2].phase), ("approval", StepPhase::Running));
    assert_eq!((report.steps[4].name.as_str(), report.steps[4].phase), ("parcels", StepPhase::Pending));
    orders.signal(&id, "approved", &json!({"by": "Ann"})).await.unwrap();
    assert_eq!(output(orders.join(&id).await.unwrap())["receipt"], json!("r-20000"));
}

async fn an_order_that_is_cancelled_is_undone(place: Place) {
    let shop = Shop::new(place).await;
    shop.restock("apples", 10).await;
    let orders = register(&shop);
    let (id, _) = orders.start(&order(20_000, 3), &named("o-1")).await.unwrap();
    until("it waits", || async { orders.report(&id).await.unwrap().step == "2/5" }).await;
    assert_eq!((shop.stock("apples").await, shop.account("o-1").await), (7, (20_000, 1)));
    orders.cancel(&id).await.unwrap();
    orders.join(&id).await.unwrap();
    let report = orders.report(&id).await.unwrap();
    assert_eq!(report.phase, Phase::Cancelled);
    assert_eq!((shop.stock("apples").await, shop.account("o-1").await), (10, (0, 2)));
    let undone: Vec<_> = brief(&report).into_iter().filter(|(name, _)| name.contains(':')).collect();
    assert_eq!(
        undone,
        [("charge:compensate", StepPhase::Completed), ("reserve:compensate", StepPhase::Completed)]
    );
    assert_eq!(report.not_undone, [""; 0]);
}
