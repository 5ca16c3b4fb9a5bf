//! The operator of Cleat: it brings about what users declare as custom resources, and tells how that is doing.
//!
//! There is one controller per kind. Each reconciliation has five steps: read what the object depends on, check it, build what shall be,
//! apply it, write the status. Checking and building ask nobody anything. The operator is the only one who writes statuses, and
//! it is in nobody's way: while it is gone, runners go on.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`controller`] | what all controllers have in common: watching, backoff, Events |
//! | [`cluster`] | Deployments and everything else that runners need |
//! | [`definition`] | EntityTypes, WorkflowTypes and CronJobs: what is wrong with them, and who serves them |
//! | [`workflow`] | executions: starts, tells and shows them |
//! | [`runners`] | the connections to runners, over which all of that is asked and told |
//! | [`leader`] | which of several replicas works |

pub mod apply;
pub mod cleanup;
pub mod cluster;
pub mod condition;
pub mod controller;
mod default_cluster;
pub mod definition;
pub mod error;
mod health;
pub mod leader;
pub mod metrics;
pub mod names;
mod options;
pub mod probe;
pub mod runners;
mod work;
pub mod workflow;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::controller::Context;
use crate::health::Health;
use crate::leader::Leader;
use crate::metrics::Metrics;
use crate::runners::Runners;

pub use error::Error;
pub use options::{Options, Runner};

/// Runs an operator until it is stopped. Then what it is doing is done, and its Lease given back: both take seconds.
///
/// # Errors
/// [`Error`] if it cannot begin, or has lost its Lease. Whatever may pass is tried again for as long as it takes.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let options = Arc::new(options.cleaned());
    let registry = Registry::new();
    let metrics = Metrics::new(&registry)?;
    let health = Health::new(registry);
    let _serving = match options.listen {
        Some(address) => Some(AbortOnDropHandle::new(health.clone().serve(address).await?)),
        None => None,
    };
    let work = async {
        if stop.run_until_cancelled(work::kinds(&client, &options)).await.is_none() {
            return Ok(());
        }
        health.ready();
        lead(client, &options, &metrics, stop.clone()).await
    };
    tokio::select! {
        done = work => done,
        () = stopped(&stop) => Ok(()),
    }
}

/// How long everything may take once the operator is to stop.
const GRACE: Duration = Duration::from_secs(20);

async fn stopped(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

/// Works once this replica leads, and only for so long.
async fn lead(
    client: Client,
    options: &Arc<Options>,
    metrics: &Metrics,
    stop: CancellationToken,
) -> Result<(), Error> {
    let candidate = |lease: &String| Leader::new(&client, &options.namespace, lease, &options.name);
    let leader = options.lease.as_ref().map(candidate);
    let mut term = None;
    if let Some(leader) = &leader {
        tokio::select! {
            held = leader.acquire() => term = Some(held),
            () = stop.cancelled() => return Ok(()),
        }
    }
    metrics.leader.set(1);
    let reporter = Reporter { controller: names::OPERATOR.to_owned(), instance: Some(options.name.clone()) };
    let context = Context {
        runners: Runners::new(client.clone(), metrics.clone()),
        recorder: Recorder::new(client.clone(), reporter),
        client,
        options: Arc::clone(options),
        metrics: metrics.clone(),
    };
    if let Some(path) = &options.default_cluster {
        default_cluster::apply(&context, path).await?;
    }
    let working = work::run(context, stop.clone());
    match (leader, term) {
        (Some(leader), Some(mut held)) => {
            tokio::select! {
                () = working => {}
                lost = leader.keep(&mut held) => return Err(lost),
            }
            leader.release(held).await;
        }
        _ => working.await,
    }
    metrics.leader.set(0);
    Ok(())
}
