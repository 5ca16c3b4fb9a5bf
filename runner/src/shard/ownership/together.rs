//! Several hosts that serve the same shards.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Host, NotOpened, Progress};
use crate::shard::Fence;

/// Several hosts that serve the same shards, as one.
///
/// Shards are opened by each in turn, in this order, and closed in the opposite one, so that a host may rely on those before it for
/// as long as it serves a shard. A shard that one of them cannot open is opened by none.
pub struct Together(Vec<Arc<dyn Host>>);

impl Together {
    /// Those hosts as one.
    pub fn new(hosts: Vec<Arc<dyn Host>>) -> Self {
        Self(hosts)
    }
}

#[async_trait]
impl Host for Together {
    async fn open(&self, fences: &[Fence]) -> Vec<Result<(), NotOpened>> {
        let mut answers: Vec<Result<(), NotOpened>> = fences.iter().map(|_| Ok(())).collect();
        for (place, host) in self.0.iter().enumerate() {
            let (places, wanted): (Vec<_>, Vec<_>) = fences
                .iter()
                .enumerate()
                .filter(|(n, _)| answers.get(*n).is_some_and(Result::is_ok))
                .map(|(n, fence)| (n, fence.clone()))
                .unzip();
            let mut opened = host.open(&wanted).await.into_iter();
            for (n, fence) in places.into_iter().zip(&wanted) {
                let answer = opened.next().unwrap_or(Err(NotOpened::Defect));
                if answer.is_err() {
                    self.0.iter().take(place).rev().for_each(|before| before.discard(fence));
                }
                if let Some(slot) = answers.get_mut(n) {
                    *slot = answer;
                }
            }
        }
        answers
    }

    async fn close(&self, fence: &Fence, within: Duration) {
        let until = tokio::time::Instant::now() + within;
        for host in self.0.iter().rev() {
            host.close(fence, until.saturating_duration_since(tokio::time::Instant::now())).await;
        }
    }

    fn discard(&self, fence: &Fence) {
        self.0.iter().rev().for_each(|host| host.discard(fence));
    }

    /// It holds work if one of them does, and moves if one of them does.
    fn progress(&self, fence: &Fence) -> Progress {
        self.0.iter().map(|host| host.progress(fence)).fold(Progress::default(), |all, one| Progress {
            holds_work: all.holds_work || one.holds_work,
            watermark: all.watermark.wrapping_add(one.watermark),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::shard::{Epoch, GroupName, ShardId};

    /// Notes what it is told, and opens all but one shard.
    struct Recorder {
        name: &'static str,
        refuses: Option<u16>,
        notes: Arc<Mutex<Vec<String>>>,
    }

    impl Recorder {
        fn note(&self, what: &str, fence: &Fence) {
            self.notes.lock().unwrap().push(format!("{} {what} {}", self.name, fence.shard.id));
        }
    }

    #[async_trait]
    impl Host for Recorder {
        async fn open(&self, fences: &[Fence]) -> Vec<Result<(), NotOpened>> {
            let open = |fence: &Fence| {
                self.note("open", fence);
                if self.refuses == Some(fence.shard.id) { Err(NotOpened::Defect) } else { Ok(()) }
            };
            fences.iter().map(open).collect()
        }

        async fn close(&self, fence: &Fence, _: Duration) {
            self.note("close", fence);
        }

        fn discard(&self, fence: &Fence) {
            self.note("discard", fence);
        }

        fn progress(&self, fence: &Fence) -> Progress {
            Progress { holds_work: self.refuses.is_some(), watermark: u64::from(fence.shard.id) }
        }
    }

    fn fence(index: u16) -> Fence {
        Fence { shard: ShardId::new(GroupName::default(), index), epoch: Epoch::new(1) }
    }

    #[tokio::test]
    async fn what_one_of_them_cannot_open_nobody_serves() {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let host =
            |name, refuses| Arc::new(Recorder { name, refuses, notes: Arc::clone(&notes) }) as Arc<dyn Host>;
        let together = Together::new(vec![host("a", None), host("b", Some(2)), host("c", None)]);

        let answers = together.open(&[fence(1), fence(2)]).await;
        assert!(answers[0].is_ok());
        assert!(answers[1].is_err());
        together.close(&fence(1), Duration::ZERO).await;

        let told = notes.lock().unwrap().join(", ");
        assert_eq!(
            told,
            "a open 1, a open 2, b open 1, b open 2, a discard 2, c open 1, c close 1, b close 1, a close 1"
        );
        assert_eq!(together.progress(&fence(3)), Progress { holds_work: true, watermark: 9 });
    }
}
