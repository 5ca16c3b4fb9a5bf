//! The commits of an instance that a handler ran ahead of.

use tokio::sync::watch;

/// How far an instance's commits have come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settlement {
    /// How many have succeeded or failed.
    pub(super) commits: u64,
    /// Raised when one fails.
    pub(super) generation: u32,
}

/// The commits of an instance that were under way when a handler began.
#[derive(Debug, Clone)]
pub(super) struct Earlier {
    commits: u64,
    generation: u32,
    /// None if there were none.
    settlement: Option<watch::Receiver<Settlement>>,
}

impl Earlier {
    /// So many commits, of this generation.
    pub(super) fn new(commits: u64, generation: u32, settlement: watch::Receiver<Settlement>) -> Self {
        Self { commits, generation, settlement: Some(settlement) }
    }

    /// None were under way.
    pub(super) fn none() -> Self {
        Self { commits: 0, generation: 0, settlement: None }
    }

    /// The generation that the handler began in.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Waits until all of them are decided. Whether all have succeeded.
    pub(super) async fn succeeded(&mut self) -> bool {
        let Some(settlement) = &mut self.settlement else { return true };
        let settled = settlement.wait_for(|settlement| settlement.commits >= self.commits).await;
        settled.is_ok_and(|settlement| settlement.generation == self.generation)
    }
}
