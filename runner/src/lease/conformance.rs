//! What every implementation of [`Leases`] has to do, as tests that each of them runs.
//!
//! [`lease_conformance!`](crate::lease_conformance) makes a test of each. All of them take a [`Subject`] without records.
#![allow(clippy::panic, reason = "these are the bodies of tests")]

mod runners;
mod shards;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Event, Leases, Memory, Name, Runner, RunnerRecord, ShardRecord, Snapshot, Timing};
use crate::shard::{GroupName, Instance, Member, ShardId, State, Version};

pub use self::runners::*;
pub use self::shards::*;
pub use self::watches::*;

/// Makes a test of each thing that an implementation of `Leases` has to do. Takes an expression that gives a fresh
/// `Subject`, which may await.
#[macro_export]
macro_rules! lease_conformance {
    ($subject:expr) => {
        $crate::lease_conformance!(@each $subject;
            a_runner_is_seen_as_it_describes_itself
            each_renewal_is_seen_with_a_new_revision
            a_renewal_goes_through_after_an_answer_that_got_lost
            a_lock_that_another_took_is_lost
            a_lock_that_was_deleted_is_lost_and_can_be_taken_again
            a_released_lock_has_no_holder
            only_the_holder_releases_a_lock
            a_shard_without_a_record_can_be_claimed_once
            a_claim_needs_the_present_record
            a_repeated_claim_has_won_already
            of_many_claims_one_wins
            a_freed_shard_keeps_its_epoch
            a_shard_that_was_claimed_meanwhile_is_not_freed
            a_deleted_shard_starts_anew
            shards_of_different_groups_are_different
            a_watch_begins_with_everything
            a_watch_misses_nothing_that_happens_while_it_begins
            every_watch_tells_of_deletions
            a_watch_that_nobody_reads_holds_nobody_up
        );
    };
    (@each $subject:expr; $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::lease::conformance::$name($subject).await;
            }
        )*
    };
}

/// An implementation under test.
pub struct Subject {
    /// The service. It has no records.
    pub leases: Arc<dyn Leases>,
    /// The same records from behind.
    pub backstage: Arc<dyn Backstage>,
}

/// What others may do to the records besides the runners: people with kubectl, a garbage collector.
#[async_trait]
pub trait Backstage: Send + Sync {
    /// Deletes a runner lock.
    async fn delete_runner(&self, name: &Name);
    /// Deletes the record of a shard.
    async fn delete_shard(&self, shard: &ShardId);
}

#[async_trait]
impl Backstage for Memory {
    async fn delete_runner(&self, name: &Name) {
        Memory::delete_runner(self, name);
    }

    async fn delete_shard(&self, shard: &ShardId) {
        Memory::delete_shard(self, shard);
    }
}

/// No implementation needs that long; one that does not answer at all fails its test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A watch and everything that it has told so far.
struct Seen {
    events: BoxStream<'static, Event>,
    runners: BTreeMap<Name, RunnerRecord>,
    shards: BTreeMap<ShardId, ShardRecord>,
}

impl Seen {
    /// Begins a watch and takes its snapshot.
    async fn from(leases: &Arc<dyn Leases>) -> Self {
        let mut seen = Self { events: leases.watch(), runners: BTreeMap::new(), shards: BTreeMap::new() };
        loop {
            match seen.next().await {
                Event::Snapshot(_) => return seen,
                Event::Stalled => {}
                other => panic!("a watch begins with a snapshot, not with {other:?}"),
            }
        }
    }

    async fn next(&mut self) -> Event {
        let next = tokio::time::timeout(PATIENCE, self.events.next()).await;
        let event = next.expect("the watch told nothing").expect("the watch ended");
        match event.clone() {
            Event::Snapshot(Snapshot { runners, shards }) => {
                self.runners = runners.into_iter().map(|record| (record.name.clone(), record)).collect();
                self.shards = shards.into_iter().map(|record| (record.shard.clone(), record)).collect();
            }
            Event::Runner(record) => drop(self.runners.insert(record.name.clone(), record)),
            Event::RunnerGone(name) => drop(self.runners.remove(&name)),
            Event::Shard(record) => drop(self.shards.insert(record.shard.clone(), record)),
            Event::ShardGone(shard) => drop(self.shards.remove(&shard)),
            Event::Leaving(_) | Event::Terminated(_) | Event::Stalled | Event::Current => {}
        }
        event
    }

    /// Follows the watch until what it told looks as it should.
    async fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            self.next().await;
        }
    }

    fn holder(&self, name: &Name) -> Option<&Runner> {
        self.runners.get(name)?.holder.as_ref()
    }
}

fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

fn group(name: &str) -> GroupName {
    GroupName::new(name).expect("a group")
}

fn shard(id: u16) -> ShardId {
    ShardId::new(GroupName::default(), id)
}

/// A runner that says something in every field.
fn runner(instance: &str) -> Runner {
    let member = Member {
        instance: Instance::new(instance),
        weight: 150,
        groups: BTreeSet::from([GroupName::default(), group("premium")]),
        version: Version::new("7-1.2.3"),
        state: State::Starting,
        avoids: BTreeSet::from([shard(3), ShardId::new(group("premium"), 299)]),
    };
    let timing = Timing::new(Duration::from_millis(9_500), Duration::from_millis(2_750)).expect("times");
    Runner {
        member,
        address: "10.1.2.3:7400".to_owned(),
        admin: Some("10.1.2.3:7401".to_owned()),
        gateway: Some("10.1.2.3:8080".to_owned()),
        timing,
        schema: Some(12),
    }
}
