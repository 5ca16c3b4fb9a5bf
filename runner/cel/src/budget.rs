//! What an evaluation may spend.

use thiserror::Error;

/// The work and the memory an evaluation may use.
///
/// *Steps* count visited nodes of the expression and work that grows with data (characters compared, items copied,
/// text matched). *Bytes* count the size of the values that are created, whether or not they are kept. Evaluations
/// that share a budget share what is left of it.
///
/// # Guarantees
/// Work is paid for before it is done: when a call returns [`Exceeded`], no more than the budget has been spent, plus
/// a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    step_limit: u64,
    byte_limit: u64,
    steps: u64,
    bytes: u64,
}

/// The budget ran out; which part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Exceeded {
    /// Too much work.
    #[error("the expression needs more than its {limit} steps")]
    Steps {
        /// What was allowed.
        limit: u64,
    },
    /// Too much memory.
    #[error("the expression creates values of more than its {limit} bytes")]
    Bytes {
        /// What was allowed.
        limit: u64,
    },
}

impl Exceeded {
    /// One word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Steps { .. } => "StepBudgetExceeded",
            Self::Bytes { .. } => "SizeBudgetExceeded",
        }
    }
}

impl Budget {
    /// A budget of `steps` and `bytes`.
    pub const fn new(steps: u64, bytes: u64) -> Self {
        Self { step_limit: steps, byte_limit: bytes, steps, bytes }
    }

    /// The steps spent so far.
    pub const fn steps_spent(&self) -> u64 {
        self.step_limit - self.steps
    }

    /// The bytes spent so far.
    pub const fn bytes_spent(&self) -> u64 {
        self.byte_limit - self.bytes
    }

    /// Pays for `count` steps.
    ///
    /// # Errors
    /// [`Exceeded::Steps`] when fewer are left; the budget is empty from then on.
    #[inline]
    pub fn step(&mut self, count: usize) -> Result<(), Exceeded> {
        match self.steps.checked_sub(count as u64) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => {
                self.steps = 0;
                Err(Exceeded::Steps { limit: self.step_limit })
            }
        }
    }

    /// Pays for `count` bytes that are about to be allocated, and for the work of filling them.
    ///
    /// # Errors
    /// [`Exceeded`] when they are more than what is left; that part of the budget is empty from then on.
    #[inline]
    pub fn allocate(&mut self, count: usize) -> Result<(), Exceeded> {
        self.step(count / BYTES_PER_STEP)?;
        match self.bytes.checked_sub(count as u64) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => {
                self.bytes = 0;
                Err(Exceeded::Bytes { limit: self.byte_limit })
            }
        }
    }

    /// Pays for looking at `count` bytes of text.
    ///
    /// # Errors
    /// [`Exceeded::Steps`] when the work is more than what is left.
    #[inline]
    pub fn scan(&mut self, count: usize) -> Result<(), Exceeded> {
        self.step(count / BYTES_PER_STEP)
    }
}

/// How many bytes of text are looked at or copied in about the time that one node takes.
pub(crate) const BYTES_PER_STEP: usize = 16;

/// The budget of one method call or one condition: some milliseconds of one core and a few megabytes.
impl Default for Budget {
    fn default() -> Self {
        Self::new(100_000, 4 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_adds_up_and_an_exceeded_budget_stays_empty() {
        let mut budget = Budget::new(10, 160);
        assert_eq!(budget.step(9), Ok(()));
        assert_eq!(budget.steps_spent(), 9);
        assert_eq!(budget.step(2), Err(Exceeded::Steps { limit: 10 }));
        assert_eq!(budget.step(1), Err(Exceeded::Steps { limit: 10 }));
        assert_eq!(Budget::new(10, 15).allocate(16), Err(Exceeded::Bytes { limit: 15 }));
        assert_eq!(Budget::new(0, 160).allocate(16), Err(Exceeded::Steps { limit: 0 }));
    }
}
