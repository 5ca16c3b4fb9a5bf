//! The sending half of a session: numbers frames, keeps what the other side has not confirmed, and knows after a
//! reconnect exactly what must be sent again.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

/// So many frames make a run, however small they are: the other side answers the first while it still handles the rest.
const FRAMES: u64 = 16;

/// Consecutive frames, each preceded by its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// The number of the first.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// The frames.
    pub bytes: Bytes,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Cuts off all frames up to a number. Nothing is left if that is all.
    fn after(mut self, number: u64) -> Option<Self> {
        while self.first <= number && self.count > 0 {
            let length = prost::decode_length_delimiter(&mut self.bytes).unwrap_or(usize::MAX);
            self.bytes.advance(length.min(self.bytes.len()));
            self.first += 1;
            self.count -= 1;
        }
        (self.count > 0).then_some(self)
    }
}

/// The other side confirms a frame that was never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame {confirmed} is confirmed, and {sent} is the last that was sent")]
pub(super) struct Impossible {
    confirmed: u64,
    sent: u64,
}

/// The sending half of a session.
///
/// # Guarantees
/// [`take`](Self::take) gives frames in the order of their numbers. After [`resume`](Self::resume) it gives exactly those
/// that the other side has not taken.
#[derive(Debug)]
pub(super) struct Outbox {
    /// How large a run may grow before the next one is begun.
    batch: usize,
    /// Frames in the making, the newest ones.
    open: BytesMut,
    open_count: u64,
    /// Full runs that wait to be sent.
    waiting: VecDeque<Run>,
    /// Runs that were sent and are not confirmed.
    sent: VecDeque<Run>,
    /// The number that the next frame gets.
    next: u64,
    /// The last number that may have reached the other side.
    reached: u64,
    /// Bytes that wait to be sent.
    backlog: usize,
}

impl Outbox {
    /// An outbox whose first frame has the number 1.
    pub fn new(batch: usize) -> Self {
        Self {
            batch,
            open: BytesMut::new(),
            open_count: 0,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            next: 1,
            reached: 0,
            backlog: 0,
        }
    }

    /// Queues a frame and says its number.
    pub fn push(&mut self, frame: &impl Message) -> u64 {
        let before = self.open.len();
        let length = frame.encoded_len();
        self.open.reserve(length + prost::length_delimiter_len(length));
        // A growing buffer has room for every message, so this cannot fail.
        let _ = frame.encode_length_delimited(&mut self.open);
        self.backlog += self.open.len() - before;
        self.open_count += 1;
        let number = self.next;
        self.next += 1;
        if self.open.len() >= self.batch || self.open_count >= FRAMES {
            self.seal();
        }
        number
    }

    fn seal(&mut self) {
        if self.open_count > 0 {
            let first = self.next - self.open_count;
            let bytes = self.open.split().freeze();
            self.waiting.push_back(Run { first, count: self.open_count, bytes });
            self.open_count = 0;
        }
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.open_count == 0 && self.waiting.is_empty()
    }

    /// What is to be sent next.
    pub fn take(&mut self) -> Option<Run> {
        if self.waiting.is_empty() {
            self.seal();
        }
        let run = self.waiting.pop_front()?;
        self.backlog = self.backlog.saturating_sub(run.bytes.len());
        self.reached = self.reached.max(run.end() - 1);
        self.sent.push_back(run.clone());
        Some(run)
    }

    /// The other side has taken all frames up to a number.
    ///
    /// # Errors
    /// [`Impossible`] if that one was not sent.
    pub fn confirm(&mut self, number: u64) -> Result<(), Impossible> {
        if number > self.reached {
            return Err(Impossible { confirmed: number, sent: self.reached });
        }
        while self.sent.front().is_some_and(|run| run.end() <= number + 1) {
            self.sent.pop_front();
        }
        Ok(())
    }

    /// Goes on over a new connection after the last frame that the other side has taken.
    ///
    /// # Errors
    /// [`Impossible`] if that one was not sent.
    pub fn resume(&mut self, number: u64) -> Result<(), Impossible> {
        self.confirm(number)?;
        while let Some(run) = self.sent.pop_back() {
            if let Some(unseen) = run.after(number) {
                self.backlog += unseen.bytes.len();
                self.waiting.push_front(unseen);
            }
        }
        self.reached = number;
        Ok(())
    }

    /// The last number that may have reached the other side.
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// How many bytes wait to be sent.
    pub fn backlog(&self) -> usize {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(run: &Run) -> Vec<String> {
        let mut bytes = run.bytes.clone();
        let frames: Vec<_> = std::iter::from_fn(|| {
            bytes.has_remaining().then(|| String::decode_length_delimited(&mut bytes).unwrap())
        })
        .collect();
        assert_eq!(u64::try_from(frames.len()).unwrap(), run.count);
        frames
    }

    /// What may happen to an outbox.
    #[derive(Debug, Clone)]
    enum Step {
        Push,
        /// A run is sent and the other side takes so many of its frames before the connection is cut, or all.
        Send {
            taken: usize,
        },
        Confirm,
        Reconnect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => Just(Step::Push),
            3 => (0usize..12).prop_map(|taken| Step::Send { taken }),
            1 => Just(Step::Confirm),
            1 => Just(Step::Reconnect),
        ]
    }

    proptest! {
        #[test]
        fn the_other_side_takes_each_frame_once_and_in_order(steps in proptest::collection::vec(step(), 0..200), batch in 1usize..64) {
            let mut outbox = Outbox::new(batch);
            let (mut pushed, mut taken) = (0u64, Vec::new());
            let mut cut = false;
            for step in steps {
                match step {
                    Step::Push => {
                        pushed += 1;
                        prop_assert_eq!(outbox.push(&format!("frame {pushed}")), pushed);
                    }
                    Step::Send { .. } if cut => {}
                    Step::Send { taken: most } => {
                        let Some(run) = outbox.take() else { continue };
                        prop_assert_eq!(run.first, u64::try_from(taken.len()).unwrap() + 1);
                        let all = frames(&run);
                        cut = most < all.len();
                        taken.extend(all.into_iter().take(most));
                    }
                    Step::Confirm => outbox.confirm(u64::try_from(taken.len()).unwrap()).unwrap(),
                    Step::Reconnect => {
                        outbox.resume(u64::try_from(taken.len()).unwrap()).unwrap();
                        cut = false;
                    }
                }
            }
            outbox.resume(u64::try_from(taken.len()).unwrap()).unwrap();
            while let Some(run) = outbox.take() {
                taken.extend(frames(&run));
            }
            let expected: Vec<_> = (1..=pushed).map(|n| format!("frame {n}")).collect();
            prop_assert_eq!(taken, expected);
            prop_assert_eq!(outbox.backlog(), 0);
            outbox.confirm(pushed).unwrap();
            prop_assert!(outbox.sent.is_empty());
        }
    }

    #[test]
    fn a_frame_that_was_never_sent_cannot_be_confirmed() {
        let mut outbox = Outbox::new(1);
        outbox.push(&"a".to_owned());
        assert_eq!(outbox.confirm(1), Err(Impossible { confirmed: 1, sent: 0 }));
        outbox.take();
        assert_eq!(outbox.confirm(1), Ok(()));
        assert_eq!(outbox.resume(2), Err(Impossible { confirmed: 2, sent: 1 }));
    }

    #[test]
    fn frames_that_wait_are_sent_together_but_not_so_many_that_the_first_wait_for_the_last() {
        let mut outbox = Outbox::new(1 << 16);
        for _ in 0..100 {
            outbox.push(&"a".to_owned());
        }
        let runs: Vec<u64> = std::iter::from_fn(|| outbox.take()).map(|run| run.count).collect();
        assert_eq!(runs, [16, 16, 16, 16, 16, 16, 4]);
        assert_eq!(outbox.take(), None);
    }
}
