//! Asking the database whether fences stand, many at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::epochs::Epochs;
use crate::shard::Fence;
use crate::store::Error;

/// Somebody wants to know.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) fences: Vec<Fence>,
    pub(super) answer: oneshot::Sender<Result<Vec<bool>, Error>>,
}

/// Answers questions for ever. Those that come while a statement is under way wait for the next one, which is one for all.
pub(super) async fn answer(
    epochs: Arc<dyn Epochs>,
    patience: Duration,
    mut questions: mpsc::UnboundedReceiver<Question>,
    fenced: impl Fn(Fence),
) {
    while let Some(first) = questions.recv().await {
        let mut batch = vec![first];
        while let Ok(question) = questions.try_recv() {
            batch.push(question);
        }
        // Whoever does not wait any more is not asked for.
        batch.retain(|question| !question.answer.is_closed());
        let mut places: HashMap<Fence, usize> = HashMap::new();
        let mut fences: Vec<Fence> = Vec::new();
        for fence in batch.iter().flat_map(|question| &question.fences) {
            places.entry(fence.clone()).or_insert_with(|| {
                fences.push(fence.clone());
                fences.len() - 1
            });
        }
        let verdict = check(epochs.as_ref(), patience, &fences).await;
        if let Ok(standing) = &verdict {
            fences
                .into_iter()
                .zip(standing)
                .filter(|(_, stands)| !**stands)
                .for_each(|(fence, _)| fenced(fence));
        }
        for question in batch {
            let look = |standing: &Vec<bool>| {
                let stands =
                    |fence: &Fence| places.get(fence).and_then(|at| standing.get(*at)) == Some(&true);
                question.fences.iter().map(stands).collect()
            };
            // Whoever asked may be gone.
            let _ = question.answer.send(verdict.as_ref().map(look).map_err(Clone::clone));
        }
    }
}

/// Asks once, for at most that long. To ask for nothing takes no statement.
pub(super) async fn check(
    epochs: &dyn Epochs,
    patience: Duration,
    fences: &[Fence],
) -> Result<Vec<bool>, Error> {
    if fences.is_empty() {
        return Ok(Vec::new());
    }
    match timeout(patience, epochs.standing(fences)).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(Error::Unavailable { source: Arc::new(elapsed) }),
    }
}
