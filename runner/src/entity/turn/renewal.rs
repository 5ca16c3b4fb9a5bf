//! Going on under a definition that has taken the place of this one.

use super::Turn;

impl Turn {
    /// Ends this turn once nothing of it is under way, and gives what is left to an instance of the new definition. Nothing new begins
    /// here, but for what somebody asks for whom a request of this instance waits. Whether it has ended.
    pub(super) fn renew(&mut self) -> bool {
        if self.me.waiting.any() {
            self.take();
            self.call_back();
        }
        let under_way = !self.entering.is_empty()
            || !self.running.is_empty()
            || !self.finished.is_empty()
            || !self.committing.is_empty()
            || !self.stuck.is_empty();
        if under_way {
            return false;
        }
        // In the order in which they came: what has to be run again, what failed, what has not begun.
        let again = self.again.drain(..);
        let left = again.chain(self.outdated.drain(..)).chain(self.ready.drain(..)).collect();
        self.shard.renew(&self.me, left);
        true
    }
}
