//! Ids for messages: drawn from a leased machine number, whose lease is kept.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use crate::health::{Health, Reason};
use crate::message::Snowflake;
use crate::message::snowflake::{Exhausted, Generator};
use crate::store::{self, Store, Wake};

/// How long somebody waits for an id while the lease is renewed.
const WAIT: Duration = Duration::from_secs(5);
/// How soon a renewal that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The source of a runner's ids.
pub(in crate::entity) struct Ids {
    generator: Arc<Generator>,
    /// The ids are used up.
    wanted: Notify,
    /// The lease was renewed.
    renewed: Notify,
    health: Health,
}

impl Ids {
    pub(super) fn new(generator: Arc<Generator>, health: Health) -> Self {
        Self { generator, wanted: Notify::new(), renewed: Notify::new(), health }
    }

    /// An id, if there is one left. Otherwise the lease is renewed at once, for the next caller.
    pub(in crate::entity) fn next(&self) -> Result<Snowflake, Exhausted> {
        self.generator.next().inspect_err(|_| self.wanted.notify_one())
    }

    /// An id. If none is left, it waits a while for the lease to be renewed.
    pub(in crate::entity) async fn draw(&self) -> Result<Snowflake, Exhausted> {
        let drawn = async {
            loop {
                let mut renewed = std::pin::pin!(self.renewed.notified());
                // From here on no renewal is missed.
                renewed.as_mut().enable();
                if let Ok(id) = self.next() {
                    return id;
                }
                renewed.await;
            }
        };
        match tokio::time::timeout(WAIT, drawn).await {
            Ok(id) => Ok(id),
            Err(_) => self.generator.next(),
        }
    }

    /// Renews the lease long before it runs out, at once when the ids are used up, and whenever the connection to the database was lost: it
    /// may be another server by now, one that has not seen our lease.
    pub(super) async fn keep_leased(
        self: Arc<Self>,
        store: Arc<dyn Store>,
        every: Duration,
        stop: CancellationToken,
    ) {
        let mut wakes = store.wakes();
        let mut pause = every;
        loop {
            let due = tokio::time::sleep(pause);
            tokio::select! {
                () = stop.cancelled() => return,
                () = due => {}
                () = self.wanted.notified() => {}
                () = reconnected(&mut wakes) => {}
            }
            pause = match self.renew(store.as_ref()).await {
                Ok(()) => every,
                Err(store::Error::Closed) => return,
                Err(error) => {
                    tracing::warn!(
                        event = "id_lease_not_renewed",
                        error = &error as &dyn std::error::Error,
                        "the lease of this runner's machine number could not be renewed and is tried again: \
                         when its ids are used up, calls fail"
                    );
                    if self.generator.is_exhausted() {
                        self.health.report(
                            Reason::NoIds,
                            "no request id is left, and the lease of the machine number that new ones are made of cannot be \
                             renewed: calls fail until it is, which is tried every second; check the database",
                        );
                    }
                    AGAIN.min(every)
                }
            };
        }
    }

    async fn renew(&self, store: &dyn Store) -> Result<(), store::Error> {
        let held = self.generator.machine();
        let span = store.renew_machine(held).await?;
        if span.machine != held {
            tracing::warn!(
                event = "id_lease_lost",
                lost = held.get(),
                leased = span.machine.get(),
                "the database does not have the lease of this runner's machine number any more (failover, restore or repair): \
                 new ids are those of another number"
            );
        }
        self.generator.renew(&span);
        self.renewed.notify_waiters();
        self.health.clear(Reason::NoIds);
        Ok(())
    }
}

/// Waits until the connection to the database was lost and is there again.
async fn reconnected(wakes: &mut broadcast::Receiver<Wake>) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Everything) => return,
            Ok(Wake::Shard(_)) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        }
    }
}
