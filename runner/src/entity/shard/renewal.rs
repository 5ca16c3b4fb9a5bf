//! An instance whose definition was replaced.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shard;
use crate::entity::activation::Activation;
use crate::entity::job::Job;

impl Shard {
    /// Lets an instance of the definition that counts now take the place of one that has ended. It gets what that one has left, and then
    /// what waits in its mailbox: nothing overtakes anything.
    pub(in crate::entity) fn renew(self: &Arc<Self>, old: &Arc<Activation>, left: VecDeque<Job>) {
        let Some(inner) = self.inner.upgrade() else { return };
        self.waiting.fetch_add(left.len(), Ordering::Relaxed);
        let mut activations = self.activations();
        // From here on whoever has a message for it looks for another instance, and finds it when this is done.
        let waiting = old.mailbox().close();
        let jobs: Vec<Job> = left.into_iter().chain(waiting).collect();
        let Some(kind) = inner.registry.get(&old.address.entity_type) else {
            activations.remove(&old.address);
            drop(activations);
            self.taken(jobs.len());
            jobs.into_iter().for_each(|job| Arc::clone(self).dispatch(job));
            return;
        };
        let new = Arc::new(Activation::new(old.address.clone(), kind));
        activations.insert(old.address.clone(), Arc::clone(&new));
        for job in jobs {
            // It was made just now, and nobody else knows it yet.
            if let Err(job) = new.put(self, job) {
                self.taken(1);
                self.refuse(*job, crate::entity::Error::NotHere(self.fence.shard.clone()));
            }
        }
    }
}
