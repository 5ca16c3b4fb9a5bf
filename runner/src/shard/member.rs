//! What a runner says of itself that decides what it is given.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{GroupName, Instance, ShardId};

/// How far a runner is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there and takes no shards yet.
    Starting,
    /// It takes shards.
    Ready,
    /// It gives its shards away and takes no new ones.
    Draining,
}

impl State {
    /// What the word that Leases carry stands for.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Starting, Self::Ready, Self::Draining].into_iter().find(|state| state.as_str() == word)
    }

    /// The word that Leases carry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which rollout a runner belongs to. Versions are ordered, and shards move towards the newest.
///
/// The order reads runs of digits as numbers: `9` comes before `10`, and `1.9.0` before `1.10.0`. It is not the order of
/// semantic versions. Whoever rolls out puts a number in front that always rises (in Kubernetes the generation of the
/// Cluster), so that a rollback is newer than what it replaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(Arc<str>);

impl Version {
    /// A version as Leases carry it.
    pub fn new(version: impl Into<Arc<str>>) -> Self {
        Self(version.into())
    }

    /// The version as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (self.0.as_bytes(), other.0.as_bytes());
        while let ([a, ..], [b, ..]) = (left, right) {
            let order = if a.is_ascii_digit() && b.is_ascii_digit() {
                let (x, y) = (take_number(&mut left), take_number(&mut right));
                // Without leading zeros the longer number is the greater one, whatever its size.
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            } else {
                (left, right) = (&left[1..], &right[1..]);
                a.cmp(b)
            };
            if order.is_ne() {
                return order;
            }
        }
        // Equal but for leading zeros: the text decides, so that only equal versions compare as equal.
        left.len().cmp(&right.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Takes the digits in front, and gives them without leading zeros.
fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    *text = rest;
    let zeros = number.iter().position(|b| *b != b'0').unwrap_or(number.len());
    &number[zeros..]
}

/// A runner as the assignment sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which start of which process it is.
    pub instance: Instance,
    /// How much it can carry compared to the others. With 0 it gets shards only if nobody else can.
    pub weight: u16,
    /// The shard groups that it serves.
    pub groups: BTreeSet<GroupName>,
    /// Which rollout it belongs to.
    pub version: Version,
    /// How far it is in its life.
    pub state: State,
    /// Shards that made no progress on it: it does not get them as long as somebody else can.
    pub avoids: BTreeSet<ShardId>,
}

impl Member {
    /// The weight of a runner of which nobody said how much it can carry.
    pub const DEFAULT_WEIGHT: u16 = 100;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let rising = [
            "",
            "1",
            "01",
            "2",
            "9",
            "10",
            "10-b",
            "10-c",
            "11-a",
            "184467440737095516160",
            "v1.9.0",
            "v1.10.0",
        ];
        // "01" is "1" written differently and only has to be on one side of it.
        let mut sorted = rising.map(Version::new).to_vec();
        sorted.sort();
        let order: Vec<_> = sorted.iter().map(Version::as_str).collect();
        let expected = [
            "",
            "01",
            "1",
            "2",
            "9",
            "10",
            "10-b",
            "10-c",
            "11-a",
            "184467440737095516160",
            "v1.9.0",
            "v1.10.0",
        ];
        assert_eq!(order, expected);
    }

    proptest! {
        #[test]
        fn the_order_of_versions_is_total(a in "[0-2a.]{0,6}", b in "[0-2a.]{0,6}", c in "[0-2a.]{0,6}") {
            let (a, b, c) = (Version::new(a), Version::new(b), Version::new(c));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&b).is_eq(), a == b);
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }
    }
}
