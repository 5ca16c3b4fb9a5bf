//! Watches for clock skew between this runner and its database.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use crate::health::Reason;

/// How often the two are compared. That takes no round trip while they agree.
const EVERY: Duration = Duration::from_secs(2);

impl Inner {
    /// Reports while the wall clock of this runner differs from the database's.
    pub(super) async fn watch_clock(self: Arc<Self>) {
        let mut look = tokio::time::interval(EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = look.tick() => {}
            }
            let clock = self.store.clock();
            // What was read from the database last may be the one that is wrong by now.
            if !clock.skew().is_tolerated() && self.store.read_clock().await.is_err() {
                continue;
            }
            let skew = clock.skew();
            let ahead = if skew.seconds() > 0.0 { "ahead of" } else { "behind" };
            let message = || {
                format!(
                    "the wall clock of this runner is {ahead} the database's by more than {} s: request ids and retention follow \
                     the database's clock, and this runner deletes nothing until the two agree; check the time synchronization of \
                     its node and of the database",
                    crate::clock::TOLERATED_SKEW.as_secs()
                )
            };
            self.options.health.set(Reason::ClockSkew, (!skew.is_tolerated()).then(message));
        }
    }
}
