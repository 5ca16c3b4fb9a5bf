//! One singleton while its shard is here.

use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::host::{Inner, Registered};
use super::{Context, Stop};
use crate::entity::{Next, Retry, panic_message};
use crate::lease::{Moment, Standing};
use crate::shard::{Epoch, Fence};

/// One singleton on a shard that is served here under a fence.
pub(super) struct Task {
    pub(super) inner: Arc<Inner>,
    pub(super) registered: Arc<Registered>,
    pub(super) fence: Fence,
    /// It is asked to stop.
    pub(super) closing: CancellationToken,
    /// It is dropped.
    pub(super) aborting: CancellationToken,
}

/// How a start ended.
enum End {
    /// By itself, well.
    Finished,
    /// Because its shard leaves.
    Stopped,
    /// Because the runner's lock was not renewed in time.
    Lapsed,
    /// By an error or a panic.
    Crashed(String),
}

impl Task {
    /// Runs the singleton until its shard leaves or it has nothing more to do.
    pub(super) async fn supervise(self) {
        let name = &self.registered.singleton.name;
        let _alone = tokio::select! {
            alone = self.registered.alone.lock() => alone,
            () = self.closing.cancelled() => return,
        };
        if self.unless_closing(self.await_quiet()).await.is_none() {
            return;
        }
        let options = self.inner.options;
        let retry = Retry {
            attempts: NonZeroUsize::MAX,
            backoff: options.backoff,
            factor: 2.0,
            max: options.longest,
        };
        let mut crashes: u32 = 0;
        while self.unless_closing(self.await_standing()).await.is_some() {
            tracing::info!(singleton = %name, shard = %self.fence.shard, epoch = %self.fence.epoch, "starting");
            let began = Instant::now();
            self.registered.runs.store(true, Ordering::Release);
            let end = self.once(crashes).await;
            self.registered.runs.store(false, Ordering::Release);
            match end {
                End::Finished => {
                    tracing::info!(singleton = %name, "has ended");
                    return;
                }
                End::Stopped => return,
                End::Lapsed => {
                    tracing::warn!(singleton = %name, "stopped: the lock of this runner was not renewed in time");
                }
                End::Crashed(error) => {
                    crashes = if began.elapsed() >= options.longest { 1 } else { crashes.saturating_add(1) };
                    let failed = i32::try_from(crashes).unwrap_or(i32::MAX);
                    let Next::After(pause) = retry.next(failed, rand::random()) else { return };
                    tracing::warn!(singleton = %name, crashes, error, ?pause, "crashed, is started again");
                    if self.unless_closing(tokio::time::sleep(pause)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    async fn unless_closing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            done = work => Some(done),
        }
    }

    /// Waits until an earlier owner that did not hand over has stopped by itself.
    async fn await_quiet(&self) {
        if self.fence.epoch == Epoch::UNCLAIMED.next() {
            // Nobody had it before.
            return;
        }
        let standing = self.standing();
        let quiet = self.inner.parts.ownership.quiet_from(&self.fence.shard);
        while standing.now() < quiet {
            tokio::time::sleep(quiet.since(standing.now())).await;
        }
    }

    /// Waits until this runner stands.
    async fn await_standing(&self) {
        while !self.standing().stands() {
            tokio::time::sleep(self.inner.parts.timing.interval() / 8).await;
        }
    }

    fn standing(&self) -> &Standing {
        self.inner.parts.ownership.standing()
    }

    async fn once(&self, crashes: u32) -> End {
        let stop = Arc::new(Stop { token: self.closing.child_token(), listens: AtomicBool::new(false) });
        let context = Context {
            name: Arc::clone(&self.registered.singleton.name),
            fence: self.fence.clone(),
            crashes,
            stop: Arc::clone(&stop),
            standing: self.standing().clone(),
            host: self.inner.parts.host.clone(),
            router: Arc::clone(&self.inner.parts.router),
        };
        let run = Arc::clone(&self.registered.singleton.run);
        let interval = self.inner.parts.timing.interval();
        // A renewal is on its way when the standing ends. Who is not renewed for a third of an interval more is asked to stop; at half an
        // interval others may take this runner for dead.
        let limits = Limits { standing: self.standing().clone(), ask: interval / 3, drop: interval / 2 };
        let running = AssertUnwindSafe(async move { run(context).await }).catch_unwind().boxed();
        let mut running = Bounded { running, limits: limits.clone() };
        let ended = tokio::select! {
            biased;
            () = self.aborting.cancelled() => return End::Stopped,
            () = dismissed(&stop) => return if self.closing.is_cancelled() { End::Stopped } else { End::Lapsed },
            () = limits.lapse(&stop.token) => return End::Lapsed,
            ended = &mut running => ended,
        };
        match ended {
            None => End::Lapsed,
            Some(_) if self.closing.is_cancelled() => End::Stopped,
            Some(Ok(Ok(()))) if stop.token.is_cancelled() => End::Lapsed,
            Some(Ok(Ok(()))) => End::Finished,
            Some(Ok(Err(error))) => End::Crashed(error.to_string()),
            Some(Err(panic)) => End::Crashed(format!("it panicked: {}", panic_message(panic.as_ref()))),
        }
    }
}

/// It was asked to stop, and does not listen.
async fn dismissed(stop: &Stop) {
    stop.token.cancelled().await;
    if stop.listens.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
    }
}

/// How long a singleton may run without a renewal.
#[derive(Clone)]
struct Limits {
    standing: Standing,
    /// After the end of the standing: it is asked to stop.
    ask: Duration,
    /// After the end of the standing: it is dropped.
    drop: Duration,
}

impl Limits {
    /// When it is asked and when it is dropped; none if at once.
    fn moments(&self) -> Option<(Moment, Moment)> {
        self.standing.until().map(|until| (until + self.ask, until + self.drop))
    }

    fn are_exceeded(&self) -> bool {
        self.moments().is_none_or(|(_, drop)| drop <= self.standing.now())
    }

    /// Asks when it is time to, and ends when it is too late.
    async fn lapse(&self, token: &CancellationToken) {
        while let Some((ask, drop)) = self.moments() {
            let now = self.standing.now();
            if drop <= now {
                break;
            }
            let next = if ask <= now {
                token.cancel();
                drop
            } else {
                ask
            };
            tokio::time::sleep(next.since(now)).await;
        }
        token.cancel();
    }
}

type Ended = Result<Result<(), super::Failure>, Box<dyn std::any::Any + Send>>;

/// A future that is not polled any more once its limits are exceeded: a process that was stopped for a while finds out before it goes on.
struct Bounded {
    running: BoxFuture<'static, Ended>,
    limits: Limits,
}

impl Future for Bounded {
    /// None if the limits were exceeded.
    type Output = Option<Ended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        if self.limits.are_exceeded() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(ready!(self.running.as_mut().poll(context))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Simulated, Timing};

    fn limits() -> (Limits, Standing) {
        let standing = Standing::new(Arc::new(Simulated::starting_now()), Timing::default());
        standing.renewed(standing.now());
        let limits = Limits {
            standing: standing.clone(),
            ask: Duration::from_secs(1),
            drop: Duration::from_millis(1500),
        };
        (limits, standing)
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_stopped_for_too_long_does_not_take_another_step() {
        let (limits, _) = limits();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let stepped = Arc::new(AtomicBool::new(false));
        let step = Arc::clone(&stepped);
        let running = async move {
            let _ = gone.await;
            step.store(true, Ordering::SeqCst);
            Ok(Ok(()))
        };
        let mut bounded = Bounded { running: running.boxed(), limits };
        assert!(futures::poll!(&mut bounded).is_pending());
        // The process stands still, and then everything is ready at once.
        tokio::time::advance(Duration::from_millis(4500)).await;
        go.send(()).unwrap();
        assert!(bounded.await.is_none());
        assert!(!stepped.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_renewal_stops_nothing_and_a_missing_one_asks_before_it_drops() {
        let (limits, standing) = limits();
        let (token, began) = (CancellationToken::new(), standing.now());
        let lapse = limits.lapse(&token);
        let mut lapse = std::pin::pin!(lapse);
        assert!(tokio::time::timeout(Duration::from_millis(3900), &mut lapse).await.is_err());
        standing.renewed(standing.now());
        assert!(tokio::time::timeout(Duration::from_secs(3), &mut lapse).await.is_err());
        assert!(!token.is_cancelled());
        let asked = token.clone();
        let clock = standing.clone();
        let (asked, ()) = tokio::join!(
            async {
                asked.cancelled().await;
                clock.now()
            },
            lapse
        );
        assert_eq!(asked.since(began), Duration::from_millis(7900));
        assert_eq!(standing.now().since(began), Duration::from_millis(8400));
    }

    #[tokio::test(start_paused = true)]
    async fn without_any_standing_nothing_runs() {
        let (limits, standing) = limits();
        standing.lost();
        assert!(limits.are_exceeded());
        let token = CancellationToken::new();
        limits.lapse(&token).await;
        assert!(token.is_cancelled());
    }
}
