//! Asking for many executions at once.

use std::collections::{BTreeMap, HashMap, VecDeque};
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

/// A question, and the shard groups where nobody has looked yet.
type Open = (Question, VecDeque<String>);

async fn answer(fleet: &Fleet, batch: Vec<Question>) {
    let places = |question: Question| {
        let places = fleet.places(&question.execution.workflow);
        (question, places)
    };
    let mut open: Vec<Open> = batch.into_iter().map(places).collect();
    // What is not in the database of one group may be in that of another.
    while !open.is_empty() {
        let mut groups: BTreeMap<String, Vec<Open>> = BTreeMap::new();
        for (question, mut places) in open.drain(..) {
            match places.pop_front() {
                Some(group) => groups.entry(group).or_default().push((question, places)),
                // Whoever does not wait any more needs no answer.
                None => drop(question.answer.send(Ok(Described::Unknown))),
            }
        }
        for (group, questions) in groups {
            open.extend(look(fleet, &group, questions).await);
        }
    }
}

/// Asks runners of one shard group, and gives back what they do not know.
async fn look(fleet: &Fleet, group: &str, questions: Vec<Open>) -> Vec<Open> {
    let executions = questions.iter().map(|(question, _)| (&question.execution).into()).collect();
    let request = v1::DescribeExecutionsRequest { executions };
    let asked = fleet.ask(group, |mut admin| {
        let request = request.clone();
        async move { admin.describe_executions(request).await }
    });
    let mut unknown = Vec::new();
    match asked.await {
        Ok(response) => {
            let mut known: HashMap<Execution, Reported> = HashMap::new();
            for report in response.executions {
                if let (Some(execution), Some(result)) = (report.execution, report.result) {
                    known.insert(execution.into(), result);
                }
            }
            for (question, places) in questions {
                match read(known.get(&question.execution).cloned()) {
                    Ok(Described::Unknown) => unknown.push((question, places)),
                    result => drop(question.answer.send(result)),
                }
            }
        }
        Err(error) => {
            let mut error = Some(error);
            for (question, _) in questions {
                // The first one is told what happened; the others try again just as well.
                let _ = question.answer.send(Err(error.take().unwrap_or(Error::NoRunner)));
            }
        }
    }
    unknown
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
