//! Which executions have changed, for those who follow them.

use std::collections::BTreeSet;
use std::time::Duration;

use cleat_proto::v1::ExecutionChanges;
use cleat_proto::v1::execution_changes::{Began, Changed, Missed, What};
use futures::{Stream, StreamExt};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::executions::reference;
use crate::message::EntityAddress;
use crate::workflow::name_of;

/// How long changes are gathered: what changes several times meanwhile is told once.
const PACE: Duration = Duration::from_millis(200);
/// How many are told in one message.
const MOST: usize = 1000;

/// Tells that following began, then what has changed, until it is stopped.
pub(super) fn follow(
    changes: Receiver<EntityAddress>,
    types: BTreeSet<String>,
    stop: CancellationToken,
) -> impl Stream<Item = ExecutionChanges> + Send + 'static {
    let began = futures::stream::iter([message(What::Began(Began {}))]);
    began.chain(futures::stream::unfold((changes, types, stop), |(mut changes, types, stop)| async move {
        let what = tokio::select! {
            what = gather(&mut changes, &types) => what?,
            () = stop.cancelled() => return None,
        };
        Some((message(what), (changes, types, stop)))
    }))
}

/// What has changed since the last look; none when there is nobody to tell.
async fn gather(changes: &mut Receiver<EntityAddress>, types: &BTreeSet<String>) -> Option<What> {
    let wanted = |address: &EntityAddress| types.is_empty() || types.contains(name_of(&address.entity_type));
    let mut gathered = BTreeSet::new();
    let mut until = None;
    while gathered.len() < MOST {
        let change = match until {
            None => changes.recv().await,
            Some(until) => match tokio::time::timeout_at(until, changes.recv()).await {
                Ok(change) => change,
                Err(_) => break,
            },
        };
        match change {
            Ok(address) if wanted(&address) => {
                until = until.or_else(|| Some(tokio::time::Instant::now() + PACE));
                gathered.insert(address);
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return Some(What::Missed(Missed {})),
            Err(RecvError::Closed) if gathered.is_empty() => return None,
            Err(RecvError::Closed) => break,
        }
    }
    Some(What::Changed(Changed { executions: gathered.iter().map(reference).collect() }))
}

fn message(what: What) -> ExecutionChanges {
    ExecutionChanges { what: Some(what) }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    fn address(id: &str) -> EntityAddress {
        EntityAddress::new("workflow:order", id).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_often_is_told_once_and_what_was_missed_is_said() {
        let (tell, changes) = broadcast::channel(4);
        let stop = CancellationToken::new();
        let mut told = Box::pin(follow(changes, BTreeSet::new(), stop.clone()));
        assert_eq!(told.next().await, Some(message(What::Began(Began {}))));
        for id in ["a", "b", "a", "a"] {
            tell.send(address(id)).unwrap();
        }
        let Some(ExecutionChanges { what: Some(What::Changed(changed)) }) = told.next().await else {
            panic!()
        };
        let ids: Vec<_> = changed.executions.iter().map(|execution| execution.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(changed.executions[0].r#type, "order");
        for _ in 0..9 {
            tell.send(address("c")).unwrap();
        }
        assert_eq!(told.next().await, Some(message(What::Missed(Missed {}))));
        stop.cancel();
        // What had come by then may still be told.
        while told.next().await.is_some() {}
    }

    #[tokio::test(start_paused = true)]
    async fn only_wanted_types_are_told() {
        let (tell, changes) = broadcast::channel(4);
        let wanted = BTreeSet::from(["order".to_owned()]);
        let mut told = Box::pin(follow(changes, wanted, CancellationToken::new()));
        told.next().await;
        tell.send(EntityAddress::new("workflow:other", "x").unwrap()).unwrap();
        tell.send(address("y")).unwrap();
        drop(tell);
        let Some(ExecutionChanges { what: Some(What::Changed(changed)) }) = told.next().await else {
            panic!()
        };
        assert_eq!(changed.executions.len(), 1);
        assert_eq!(told.next().await, None);
    }
}
