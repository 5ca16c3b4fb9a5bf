//! Claims of shards.

use futures::future::join_all;

use super::{Seen, Subject, group, shard};
use crate::lease::{Claim, Revision, ShardRecord, Swap};
use crate::shard::{Epoch, Instance, ShardId};

fn claim(id: u16, expected: Option<&Revision>, holder: &str, epoch: i64) -> Claim {
    Claim {
        shard: shard(id),
        expected: expected.cloned(),
        holder: Instance::new(holder),
        epoch: Epoch::new(epoch),
        generation: 2,
    }
}

fn done(swap: Swap) -> ShardRecord {
    match swap {
        Swap::Done(record) => record,
        Swap::Lost(current) => panic!("lost to {current:?}"),
    }
}

fn lost(swap: Swap) -> Option<ShardRecord> {
    match swap {
        Swap::Lost(current) => current,
        Swap::Done(record) => panic!("won {record:?}"),
    }
}

impl Subject {
    async fn claim(&self, claim: &Claim) -> Swap {
        self.leases.claim(claim).await.expect("an answer")
    }

    async fn free(&self, record: &ShardRecord) -> Swap {
        self.leases.free(record).await.expect("an answer")
    }
}

/// The first claim makes the record, the second finds it.
pub async fn a_shard_without_a_record_can_be_claimed_once(subject: Subject) {
    let mut seen = Seen::from(&subject.leases).await;
    let record = done(subject.claim(&claim(7, None, "a", 41)).await);
    assert_eq!((&record.shard, &record.holder), (&shard(7), &Some(Instance::new("a"))));
    assert_eq!((record.epoch, record.generation), (Epoch::new(41), 2));
    assert_eq!(lost(subject.claim(&claim(7, None, "b", 42)).await), Some(record.clone()));
    seen.until(|seen| seen.shards.get(&shard(7)) == Some(&record)).await;
}

/// A claim with an old revision loses and learns who has the shard.
pub async fn a_claim_needs_the_present_record(subject: Subject) {
    let first = done(subject.claim(&claim(0, None, "a", 1)).await);
    let second = done(subject.claim(&claim(0, Some(&first.revision), "b", 2)).await);
    assert_ne!(first.revision, second.revision);
    assert_eq!(lost(subject.claim(&claim(0, Some(&first.revision), "c", 3)).await), Some(second.clone()));
    let third = done(subject.claim(&claim(0, Some(&second.revision), "c", 9)).await);
    assert_eq!((third.holder, third.epoch), (Some(Instance::new("c")), Epoch::new(9)));
}

/// A claimant whose answer got lost asks again and is told that it has won.
pub async fn a_repeated_claim_has_won_already(subject: Subject) {
    let first = done(subject.claim(&claim(0, None, "a", 1)).await);
    assert_eq!(done(subject.claim(&claim(0, None, "a", 1)).await), first);
    let second = done(subject.claim(&claim(0, Some(&first.revision), "b", 2)).await);
    assert_eq!(done(subject.claim(&claim(0, Some(&first.revision), "b", 2)).await), second);
    assert_eq!(lost(subject.claim(&claim(0, Some(&first.revision), "b", 3)).await), Some(second.clone()));
    assert_eq!(lost(subject.claim(&claim(0, None, "a", 1)).await), Some(second));
}

/// Many see the same record and claim at once.
pub async fn of_many_claims_one_wins(subject: Subject) {
    let first = done(subject.claim(&claim(0, None, "a", 1)).await);
    for expected in [None, Some(&first.revision)] {
        let id = if expected.is_some() { 0 } else { 1 };
        let claims: Vec<_> = (0..16).map(|i| claim(id, expected, &format!("runner-{i}"), 2)).collect();
        let swaps = join_all(claims.iter().map(|claim| subject.claim(claim))).await;
        let (won, lost): (Vec<_>, Vec<_>) = swaps.into_iter().partition(|swap| matches!(swap, Swap::Done(_)));
        assert_eq!((won.len(), lost.len()), (1, 15));
        let Some(Swap::Done(winner)) = won.into_iter().next() else { unreachable!("one has won") };
        for swap in lost {
            assert_eq!(swap, Swap::Lost(Some(winner.clone())));
        }
    }
}

/// Freeing takes the holder and nothing else, and can be repeated.
pub async fn a_freed_shard_keeps_its_epoch(subject: Subject) {
    let mut seen = Seen::from(&subject.leases).await;
    let held = done(subject.claim(&claim(0, None, "a", 5)).await);
    let free = done(subject.free(&held).await);
    assert_eq!((&free.holder, free.epoch, free.generation), (&None, Epoch::new(5), 2));
    assert_ne!(free.revision, held.revision);
    assert_eq!(done(subject.free(&held).await), free, "the first answer may have been lost");
    seen.until(|seen| seen.shards.get(&shard(0)) == Some(&free)).await;
    let next = done(subject.claim(&claim(0, Some(&free.revision), "b", 6)).await);
    assert_eq!(next.holder, Some(Instance::new("b")));
}

/// An old owner cannot free what is not its own any more.
pub async fn a_shard_that_was_claimed_meanwhile_is_not_freed(subject: Subject) {
    let first = done(subject.claim(&claim(0, None, "a", 1)).await);
    let second = done(subject.claim(&claim(0, Some(&first.revision), "b", 2)).await);
    assert_eq!(lost(subject.free(&first).await), Some(second.clone()));
    assert_eq!(Seen::from(&subject.leases).await.shards[&shard(0)], second);
}

/// A deleted record is gone for claims, too, and no revision comes back with a new one.
pub async fn a_deleted_shard_starts_anew(subject: Subject) {
    let first = done(subject.claim(&claim(0, None, "a", 1)).await);
    subject.backstage.delete_shard(&shard(0)).await;
    assert_eq!(lost(subject.claim(&claim(0, Some(&first.revision), "b", 2)).await), None);
    assert_eq!(lost(subject.free(&first).await), None);
    let again = done(subject.claim(&claim(0, None, "b", 2)).await);
    assert_eq!(lost(subject.claim(&claim(0, Some(&first.revision), "c", 3)).await), Some(again));
}

/// The number alone does not make a shard.
pub async fn shards_of_different_groups_are_different(subject: Subject) {
    let premium = Claim { shard: ShardId::new(group("premium"), 0), ..claim(0, None, "b", 1) };
    done(subject.claim(&claim(0, None, "a", 1)).await);
    done(subject.claim(&premium).await);
    let seen = Seen::from(&subject.leases).await;
    assert_eq!(seen.shards[&shard(0)].holder, Some(Instance::new("a")));
    assert_eq!(seen.shards[&premium.shard].holder, Some(Instance::new("b")));
}
