//! Asking for many executions at once.

use std::collections::HashMap;
use std::sync::Weak;

use cleat_proto::v1;
use cleat_proto::v1::execution_report::Result as Reported;
use tokio::sync::{mpsc, oneshot};

use super::fleet::Fleet;
use super::{Described, Error, Execution};

/// Somebody who wants to know.
pub(super) struct Question {
    pub(super) execution: Execution,
    pub(super) answer: oneshot::Sender<Result<Described, Error>>,
}

/// How many are asked for at once.
const MOST: usize = 500;

/// Answers questions until nobody can ask any more. What comes while one request is under way goes into the next.
pub(super) async fn run(fleet: Weak<Fleet>, mut questions: mpsc::Receiver<Question>) {
    let mut batch = Vec::new();
    while questions.recv_many(&mut batch, MOST).await > 0 {
        let Some(fleet) = fleet.upgrade() else { return };
        answer(&fleet, std::mem::take(&mut batch)).await;
    }
}

async fn answer(fleet: &Fleet, batch: Vec<Question>) {
    let executions = batch.iter().map(|question| (&question.execution).into()).collect();
    let request = v1::DescribeExecutionsRequest { executions };
    let asked = fleet.ask(|mut admin| {
        let request = request.clone();
        async move { admin.describe_executions(request).await }
    });
    match asked.await {
        Ok(response) => {
            let mut known: HashMap<Execution, Reported> = HashMap::new();
            for report in response.executions {
                if let (Some(execution), Some(result)) = (report.execution, report.result) {
                    known.insert(execution.into(), result);
                }
            }
            for question in batch {
                let result = known.get(&question.execution).cloned();
                // Whoever does not wait any more needs no answer.
                let _ = question.answer.send(read(result));
            }
        }
        Err(error) => {
            let mut error = Some(error);
            for question in batch {
                // The first one is told what happened; the others try again just as well.
                let _ = question.answer.send(Err(error.take().unwrap_or(Error::NoRunner)));
            }
        }
    }
}

fn read(result: Option<Reported>) -> Result<Described, Error> {
    match result {
        Some(Reported::Report(text)) => serde_json::from_str(&text)
            .map(|report| Described::Report(Box::new(report)))
            .map_err(Error::Malformed),
        Some(Reported::Unknown(_)) => Ok(Described::Unknown),
        Some(Reported::Failed(failed)) => {
            Ok(Described::Failed { reason: failed.reason, message: failed.message })
        }
        None => Err(Error::NoRunner),
    }
}
