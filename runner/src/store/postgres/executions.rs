//! What a batch does to executions and journals, folded: of changes of one execution that follow each other only the last is
//! stored.

use std::collections::HashMap;
use std::time::SystemTime;

use crate::message::{EntityAddress, Snowflake};
use crate::store::{Basis, Error, Execution, ExecutionChange, Phase};

/// The executions of a batch.
#[derive(Default)]
pub(super) struct Executions<'a>(HashMap<&'a EntityAddress, Chain<'a>>);

/// What becomes of one execution.
pub(super) struct Chain<'a> {
    pub(super) fence: i32,
    /// The row to begin with, or the run that it has to have been in.
    pub(super) base: Base<'a>,
    pub(super) run: Snowflake,
    pub(super) phase: Phase,
    pub(super) active: bool,
    pub(super) ended: Option<SystemTime>,
    pub(super) summary: &'a [u8],
}

/// What a chain begins with.
pub(super) enum Base<'a> {
    New(&'a Execution),
    Run(Snowflake),
}

impl<'a> Executions<'a> {
    /// One that begins.
    pub(super) fn begin(&mut self, fence: i32, new: &'a Execution) -> Result<(), Error> {
        let chain = Chain {
            fence,
            base: Base::New(new),
            run: new.run,
            phase: new.phase,
            active: new.active,
            ended: None,
            summary: &new.summary,
        };
        match self.0.insert(&new.address, chain) {
            None => Ok(()),
            Some(_) => Err(Basis::Vacancy { address: new.address.clone() }.into()),
        }
    }

    /// One that goes on in its run.
    pub(super) fn change(&mut self, fence: i32, change: &'a ExecutionChange) -> Result<(), Error> {
        let chain = self.chain(fence, &change.address, change.run, &change.summary)?;
        chain.phase = change.phase;
        chain.active = change.active;
        chain.ended = change.ended;
        Ok(())
    }

    /// One that goes on in another run.
    pub(super) fn renew(
        &mut self,
        fence: i32,
        address: &'a EntityAddress,
        from: Snowflake,
        to: Snowflake,
        summary: &'a [u8],
    ) -> Result<(), Error> {
        let chain = self.chain(fence, address, from, summary)?;
        chain.run = to;
        chain.phase = Phase::Running;
        chain.active = true;
        chain.ended = None;
        Ok(())
    }

    /// The chain of an execution that is in a run. Writes that share a batch agree on it, but one write may contradict itself.
    fn chain(
        &mut self,
        fence: i32,
        address: &'a EntityAddress,
        run: Snowflake,
        summary: &'a [u8],
    ) -> Result<&mut Chain<'a>, Error> {
        let (phase, active, ended) = (Phase::Running, true, None);
        let fresh = Chain { fence, base: Base::Run(run), run, phase, active, ended, summary };
        let chain = self.0.entry(address).or_insert(fresh);
        if chain.run != run {
            return Err(Basis::Execution { address: address.clone(), run }.into());
        }
        chain.summary = summary;
        Ok(chain)
    }

    /// All of them, in an order in which two lanes cannot wait for each other.
    pub(super) fn settle(self) -> Vec<(&'a EntityAddress, Chain<'a>)> {
        let mut chains: Vec<_> = self.0.into_iter().collect();
        chains.sort_unstable_by_key(|(address, _)| *address);
        chains
    }
}
