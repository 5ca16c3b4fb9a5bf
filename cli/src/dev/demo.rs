//! `cleat dev --demo`: the orders example, live.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cleat_crds::workflow::{Phase, StepStatus};
use cleat_crds::{EntityType, Workflow, WorkflowType};
use futures::TryStreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use super::apply::{apply, objects};
use super::ready::until;
use crate::output;

/// What the example declares.
const DEFINITIONS: [&str; 3] = [
    include_str!("../../../examples/orders/entities.yaml"),
    include_str!("../../../examples/orders/workflow.yaml"),
    include_str!("../../../examples/orders/cron.yaml"),
];
/// What the example starts.
const ORDER: &str = include_str!("../../../examples/orders/order.yaml");
/// How long anything in it may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Applies the example, starts an order and shows it until it has ended.
pub async fn run(client: &Client, namespace: &str, gateway: SocketAddr) -> Result<()> {
    println!("\nThe orders example: an inventory and payments in CEL, an order in steps.");
    for object in DEFINITIONS.iter().map(|text| objects(text)).collect::<Result<Vec<_>>>()?.concat() {
        println!("  {} applied", apply(client, namespace, &object).await?);
    }
    declared(client, namespace).await?;
    restock(gateway).await?;
    let order = start(client, namespace).await?;
    println!("  workflow/{order} created\n");
    let ended = follow(client, namespace, &order).await?;
    let status = ended.status.unwrap_or_default();
    if status.phase != Phase::Completed {
        let why = status.failure.map(|failure| format!("{}: {}", failure.reason, failure.message));
        bail!("the order ended as {:?}: {}", status.phase, why.unwrap_or_default());
    }
    let output = status.output.map(|output| output.0.to_string()).unwrap_or_default();
    println!("\nThe order is complete: {output}");
    println!("\nGo on with:");
    println!("  kubectl get cleat");
    println!("  kubectl describe cwf/{order}");
    println!("  kubectl create -f examples/orders/order.yaml");
    println!("  kubectl scale ccl/default --replicas=3 && kubectl get pods -w");
    println!("  curl -s http://{gateway}/v1/entities/inventory/apples/get -X POST");
    println!("  cleat workflow list\n");
    Ok(())
}

/// Waits until the operator has found the definitions good and the runners serve them.
async fn declared(client: &Client, namespace: &str) -> Result<()> {
    let ready = |conditions: &[Condition]| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let entities: Api<EntityType> = Api::namespaced(client.clone(), namespace);
    for name in ["inventory", "payments"] {
        until(entities.clone(), name, PATIENCE, &format!("that EntityType {name} is ready"), |entity| {
            entity.status.as_ref().is_some_and(|status| ready(&status.conditions))
        })
        .await?;
    }
    let workflows: Api<WorkflowType> = Api::namespaced(client.clone(), namespace);
    until(workflows, "order", PATIENCE, "that WorkflowType order is ready", |workflow| {
        workflow.status.as_ref().is_some_and(|status| ready(&status.conditions))
    })
    .await?;
    Ok(())
}

/// Sees to it that there is something to order.
async fn restock(gateway: SocketAddr) -> Result<()> {
    let target = crate::target::Target::at(gateway.to_string());
    let mut gateway = crate::gateway::Gateway::find(&target).await?;
    let question = crate::gateway::Question::post(
        "/v1/entities/inventory/apples/restock",
        Some(serde_json::json!({"count": 10})),
    );
    let answer = gateway.ask(question).await.context("apples cannot be restocked")?;
    println!("  10 apples restocked: {answer}");
    Ok(())
}

async fn start(client: &Client, namespace: &str) -> Result<String> {
    let order = objects(ORDER)?.into_iter().next().context("the example has no order")?;
    let order: Workflow = order.try_parse().context("the example's order")?;
    let workflows: Api<Workflow> = Api::namespaced(client.clone(), namespace);
    let created =
        workflows.create(&PostParams::default(), &order).await.context("the order cannot be created")?;
    Ok(created.name_any())
}

/// Shows each step as it comes, until the end.
async fn follow(client: &Client, namespace: &str, name: &str) -> Result<Workflow> {
    let workflows: Api<Workflow> = Api::namespaced(client.clone(), namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher(workflows, config).default_backoff().applied_objects());
    let mut shown: Vec<(String, String)> = Vec::new();
    let begun = std::time::Instant::now();
    let ended = async {
        loop {
            let Some(workflow) = events.try_next().await? else { bail!("the watch has ended") };
            let Some(status) = &workflow.status else { continue };
            for step in &status.steps {
                let now = (step.name.clone(), step.phase.clone());
                if !shown.contains(&now) {
                    println!("  {:>5.1}s  {}", begun.elapsed().as_secs_f64(), line(step));
                    shown.push(now);
                }
            }
            if status.phase.is_final() {
                return Ok(workflow);
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.context("the order did not end in time")?
}

fn line(step: &StepStatus) -> String {
    let message = step.message.as_deref().map(|message| format!("  {message}")).unwrap_or_default();
    let kind = step.kind.as_deref().unwrap_or("step");
    format!("{:<12} {:<8} {}{message}", step.name, kind, output::phase(&step.phase))
}
