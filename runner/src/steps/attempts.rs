//! Taking a step again as a whole.
//!
//! Each attempt has a path of its own, `both`, `both#2`, `both#3`, and with it entries in the journal and keys of its own: what is asked in a
//! later attempt is asked anew. What an earlier one did is undone before.

use std::sync::Arc;

use cleat_cel::Value;

use super::fault::TOO_LARGE;
use super::program::Step;
use super::run::{Halt, Run};
use super::scope::Scope;
use super::stop::{Stop, unless};
use crate::workflow::Noted;

impl Run {
    /// Takes a step as often as its `retry` says, until it succeeds.
    pub(super) async fn attempts(
        self: &Arc<Self>,
        step: &Step,
        path: &str,
        noted: Noted,
        scope: &Scope,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        let Some(retry) = step.again else { return self.action(step, path, scope, stop).await };
        let mut attempt = 1;
        let mut within = path.to_owned();
        self.context.tried(noted, attempt, None);
        loop {
            let halt = match self.action(step, &within, scope, stop).await {
                Err(halt) if halt.may_pass() => halt,
                taken => return taken,
            };
            if stop.is_set() || retry.attempts.is_some_and(|most| attempt >= most) {
                return Err(halt);
            }
            // What could not be undone must not be done twice.
            if !self.context.undo_within(&within).await {
                return Err(halt);
            }
            unless(stop, self.context.sleep_named(&format!("{path}:retry"), retry.pause(attempt))).await?;
            self.context.forget_failures(&within);
            attempt += 1;
            within = format!("{path}#{attempt}");
            self.context.tried(noted, attempt, Some(halt.to_string()));
        }
    }
}

impl Halt {
    /// Whether another attempt may end otherwise. What the execution has used up does not come back.
    fn may_pass(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.kind != TOO_LARGE,
            Self::Unknown(_) => true,
            Self::Stopped => false,
        }
    }
}
