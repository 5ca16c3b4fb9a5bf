//! The requests of an instance that wait for other entities.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::chain::Chain;
use super::definition::{Access, Concurrency};
use crate::message::{EntityAddress, Snowflake};

/// The requests of an instance that wait for other entities. Usually there are none.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Vec<Waits>>);

#[derive(Debug)]
struct Waits {
    request: Snowflake,
    /// Whether nothing else may run here meanwhile.
    alone: bool,
}

impl Waiting {
    pub(super) fn enter(&self, request: Snowflake, alone: bool) {
        self.list().push(Waits { request, alone });
    }

    pub(super) fn leave(&self, request: Snowflake) {
        let mut list = self.list();
        if let Some(place) = list.iter().position(|waits| waits.request == request) {
            list.swap_remove(place);
        }
    }

    /// Whether any request waits.
    pub(super) fn any(&self) -> bool {
        !self.list().is_empty()
    }

    /// Whether one of them waits, through others, for a message that came by this chain.
    pub(super) fn includes(&self, chain: &Chain, me: &EntityAddress) -> bool {
        let list = self.list();
        chain.requests_of(me).any(|request| list.iter().any(|waits| waits.request == request))
    }

    /// Whether a message that came by this chain can never run, because what it waits for waits for it.
    pub(super) fn excludes(
        &self,
        chain: &Chain,
        me: &EntityAddress,
        access: Access,
        concurrency: Concurrency,
    ) -> bool {
        let list = self.list();
        let mut own: Vec<Snowflake> = Vec::new();
        let mut alone = access == Access::Write;
        for request in chain.requests_of(me) {
            if let Some(waits) = list.iter().find(|waits| waits.request == request)
                && !own.contains(&request)
            {
                alone |= waits.alone;
                own.push(request);
            }
        }
        !own.is_empty() && (alone || !concurrency.allows(own.len()))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Waits>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
