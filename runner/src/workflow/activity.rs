//! Things that a workflow does outside: how often, for how long, and what is known of them while they run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::journal::Step;
use super::tx::Tx;
use crate::message::{EntityAddress, Failure, Outcome, Snowflake, codec};

/// How an activity is tried.
///
/// Time-outs, panics and what an activity calls worth another attempt are tried ten times if nothing else is said; an error of the
/// activity's own only if more than one attempt is asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How many attempts there are.
    pub attempts: Option<u32>,
    /// The pauses between them.
    pub backoff: Backoff,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How long all attempts together may take, with their pauses.
    pub deadline: Option<Duration>,
    /// How long it may be silent. It is never too silent if nothing is said.
    pub heartbeat: Option<Duration>,
}

/// The pauses between attempts. Each is drawn from its upper half, so that those who failed together do not come back together.
#[derive(Debug, Clone, Copy)]
pub enum Backoff {
    /// Each is longer than the one before.
    Exponential {
        /// The first one.
        first: Duration,
        /// What each further one is multiplied with.
        factor: f64,
        /// The longest.
        max: Duration,
    },
    /// All are alike.
    Constant(Duration),
    /// As a function says, given how many attempts have failed.
    Custom(fn(u32) -> Duration),
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential { first: Duration::from_millis(100), factor: 2.0, max: Duration::from_secs(60) }
    }
}

/// What one attempt gives.
pub type Attempted = Result<Bytes, Failed>;

/// Why an attempt gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// An error that no attempt will change.
    Final(Failure),
    /// An error that may be gone with the next attempt. The last one is what the workflow gets.
    Again(Failure),
    /// It did not work, and there is no error to give.
    Defect {
        /// One word for machines, such as `TimedOut`.
        kind: &'static str,
        /// A sentence for people.
        message: String,
    },
}

impl Failed {
    /// It did not work this time.
    pub fn retry(message: impl fmt::Display) -> Self {
        Self::Defect { kind: "RetriesExhausted", message: message.to_string() }
    }

    /// An error of the activity's own, in words, that no attempt will change.
    pub fn last(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Final(Failure { kind: kind.into(), message: message.into(), details: Bytes::new() })
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Final(failure) | Self::Again(failure) => write!(f, "{}: {}", failure.kind, failure.message),
            Self::Defect { message, .. } => f.write_str(message),
        }
    }
}

/// What follows a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Another one, at a time in milliseconds of Unix time.
    At(i64),
    /// Nothing: this is what came of it.
    End(Outcome),
}

/// How often what is not an error of the activity's own is tried, if nothing is said.
const ATTEMPTS: u32 = 10;

impl Options {
    /// What follows when `failed` attempts have been made, since and now in milliseconds of Unix time. `chance` is a random number
    /// from 0 to 1.
    pub(super) fn next(&self, failed: u32, why: Failed, since: i64, now: i64, chance: f64) -> Next {
        let attempts = match &why {
            Failed::Final(_) => 1,
            Failed::Again(_) => self.attempts.unwrap_or(1),
            Failed::Defect { .. } => self.attempts.unwrap_or(ATTEMPTS),
        };
        let again = now.saturating_add(millis(self.backoff.pause(failed, chance)));
        let late = self.ends(since).is_some_and(|end| again >= end);
        if failed < attempts && !late {
            return Next::At(again);
        }
        Next::End(match why {
            Failed::Final(failure) | Failed::Again(failure) => Outcome::Failure(failure),
            Failed::Defect { message, .. } if late && failed < attempts => {
                Outcome::defect("TimedOut", format!("there is no time for another attempt: {message}"))
            }
            Failed::Defect { kind, message } => Outcome::defect(kind, message),
        })
    }

    /// When all attempts must have ended.
    pub(super) fn ends(&self, since: i64) -> Option<i64> {
        Some(since.saturating_add(millis(self.deadline?)))
    }
}

impl Backoff {
    fn pause(self, failed: u32, chance: f64) -> Duration {
        let full = match self {
            Self::Exponential { first, factor, max } => {
                let exponent = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
                (first.as_secs_f64() * factor.max(1.0).powi(exponent)).min(max.as_secs_f64())
            }
            Self::Constant(pause) => return pause,
            Self::Custom(pause) => return pause(failed),
        };
        Duration::from_secs_f64(full * (0.5 + chance.clamp(0.0, 1.0) / 2.0))
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// An activity that a function asks for.
pub(super) struct Activity {
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) run: Run,
}

pub(super) type Run = Arc<dyn Fn(Context) -> BoxFuture<'static, Attempted> + Send + Sync>;

/// What an activity knows about itself while it runs. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Whose activity.
    pub address: EntityAddress,
    /// Which run of it.
    pub run: Snowflake,
    /// Which step.
    pub step: Step,
    /// How many attempts have failed before this one.
    pub attempt: u32,
    /// A transaction that commits with the journal, if the activity succeeds.
    pub tx: Tx,
    /// The key that it had in an earlier run, in which its outcome was unknown.
    pub(super) kept_key: Option<String>,
    pub(super) progress: Option<Bytes>,
    pub(super) beat: Arc<watch::Sender<Option<Bytes>>>,
    pub(super) cancel: CancellationToken,
}

impl Context {
    /// A key that is the same for each attempt and for no other step: what to give to services that deduplicate.
    ///
    /// A retry of the execution uses it again if the outcome of the activity was unknown.
    pub fn key(&self) -> String {
        self.kept_key.clone().unwrap_or_else(|| format!("{}:{}", self.run, self.step))
    }

    /// The same for an activity that is known by its name.
    pub(crate) fn key_by_name(&self, name: &str) -> String {
        self.kept_key.clone().unwrap_or_else(|| format!("{}:{name}", self.run))
    }

    /// Says that it is alive, and how far it has come. The next attempt is told.
    ///
    /// # Errors
    /// The progress has no form in MessagePack.
    pub fn heartbeat<T: Serialize + ?Sized>(&self, progress: &T) -> Result<(), codec::Error> {
        let progress = codec::encode(progress)?;
        self.beat.send_replace(Some(progress.into()));
        Ok(())
    }

    /// How far an earlier attempt had come, by its own account.
    ///
    /// # Errors
    /// What it said is of another type.
    pub fn progress<T: DeserializeOwned>(&self) -> Result<Option<T>, codec::Error> {
        self.progress.as_ref().map(|progress| codec::decode(progress)).transpose()
    }

    /// Comes back when nobody waits for the activity any more. It is dropped soon after.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether nobody waits for the activity any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn again() -> Failed {
        Failed::Again(Failure { kind: "Busy".into(), message: "later".into(), details: Bytes::new() })
    }

    #[test]
    fn an_error_is_tried_again_only_if_that_is_asked_for() {
        let once = Options::default();
        assert!(matches!(once.next(1, again(), 0, 0, 0.0), Next::End(Outcome::Failure(_))));
        let often = Options { attempts: Some(3), ..Options::default() };
        assert!(matches!(often.next(1, again(), 0, 0, 0.0), Next::At(_)));
        assert!(matches!(often.next(2, again(), 0, 0, 0.0), Next::At(_)));
        assert!(matches!(often.next(3, again(), 0, 0, 0.0), Next::End(Outcome::Failure(_))));
    }

    #[test]
    fn an_error_that_no_attempt_will_change_is_final() {
        let often = Options { attempts: Some(3), ..Options::default() };
        assert!(matches!(often.next(1, Failed::last("No", "no"), 0, 0, 0.0), Next::End(Outcome::Failure(_))));
    }

    #[test]
    fn a_defect_is_tried_ten_times() {
        let options = Options::default();
        assert!(matches!(options.next(9, Failed::retry("?"), 0, 0, 0.0), Next::At(_)));
        let Next::End(Outcome::Defect(defect)) = options.next(10, Failed::retry("?"), 0, 0, 0.0) else {
            panic!("it was the last attempt")
        };
        assert_eq!(defect.kind, "RetriesExhausted");
    }

    #[test]
    fn there_is_no_attempt_after_the_deadline() {
        let options = Options {
            deadline: Some(Duration::from_secs(1)),
            backoff: Backoff::Constant(Duration::from_millis(300)),
            ..Options::default()
        };
        assert_eq!(options.next(1, Failed::retry("?"), 0, 600, 1.0), Next::At(900));
        let Next::End(Outcome::Defect(defect)) = options.next(1, Failed::retry("?"), 0, 700, 1.0) else {
            panic!("it would be too late")
        };
        assert_eq!(defect.kind, "TimedOut");
    }

    #[test]
    fn pauses_are_as_was_said() {
        let constant = Backoff::Constant(Duration::from_secs(2));
        assert_eq!(constant.pause(7, 0.3), Duration::from_secs(2));
        let custom = Backoff::Custom(|failed| Duration::from_secs(u64::from(failed) * 10));
        assert_eq!(custom.pause(3, 0.3), Duration::from_secs(30));
        let doubling =
            Backoff::Exponential { first: Duration::from_secs(1), factor: 2.0, max: Duration::from_secs(3) };
        let pauses: Vec<_> = (1..5).map(|failed| doubling.pause(failed, 1.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 3, 3]);
    }

    proptest! {
        #[test]
        fn no_pause_is_longer_than_the_longest(failed in any::<u32>(), chance in 0.0..1.0f64) {
            prop_assert!(Backoff::default().pause(failed, chance) <= Duration::from_secs(60));
        }
    }
}
