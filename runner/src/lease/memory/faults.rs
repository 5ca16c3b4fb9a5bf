//! What can go wrong between a runner and the lease service.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::watch;

use crate::lease::Error;

/// What goes wrong on one connection. All of it takes effect at once and until it is taken back.
#[derive(Debug)]
pub struct Faults {
    calls: Mutex<Calls>,
    watching: watch::Sender<Watching>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    fail: bool,
    mute: bool,
    delay: Duration,
}

/// What happens to the watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watching {
    /// They tell everything.
    Open,
    /// They tell nothing, and that without a word.
    Frozen,
    /// They have been cut, and know it.
    Cut,
}

/// A fault that somebody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Injected {
    /// The call did not reach the service.
    #[error("the call did not reach the service: an outage was injected")]
    Outage,
    /// The call took effect, and its answer got lost.
    #[error("the answer got lost: that was injected")]
    AnswerLost,
}

impl Default for Faults {
    fn default() -> Self {
        Self { calls: Mutex::default(), watching: watch::Sender::new(Watching::Open) }
    }
}

impl Faults {
    /// An outage: calls do not reach the service, watches are cut and begin anew when it ends.
    pub fn outage(&self, on: bool) {
        self.set(|calls| calls.fail = on);
        self.cut_watches(on);
    }

    /// Watches are cut and begin anew when it ends. Calls go through.
    pub fn cut_watches(&self, on: bool) {
        self.watching.send_replace(if on { Watching::Cut } else { Watching::Open });
    }

    /// Watches tell nothing and do not notice, as over a connection of which the other end is gone. What they missed comes
    /// when it ends.
    pub fn freeze_watches(&self, on: bool) {
        self.watching.send_replace(if on { Watching::Frozen } else { Watching::Open });
    }

    /// Calls take effect, but their answers get lost.
    pub fn lose_answers(&self, on: bool) {
        self.set(|calls| calls.mute = on);
    }

    /// Calls need that long to reach the service.
    pub fn delay(&self, delay: Duration) {
        self.set(|calls| calls.delay = delay);
    }

    fn set(&self, change: impl FnOnce(&mut Calls)) {
        change(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn calls(&self) -> Calls {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn on_the_way(&self) -> Result<(), Error> {
        let delay = self.calls().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.calls().fail { Err(Error::Unavailable(Injected::Outage.into())) } else { Ok(()) }
    }

    pub(super) fn on_the_way_back(&self) -> Result<(), Error> {
        if self.calls().mute { Err(Error::Unavailable(Injected::AnswerLost.into())) } else { Ok(()) }
    }

    pub(super) fn watching(&self) -> watch::Receiver<Watching> {
        self.watching.subscribe()
    }
}
