//! Watches.

use std::sync::Arc;

use super::{Seen, Subject, name, runner, shard};
use crate::lease::{Claim, Leases, Swap};
use crate::shard::{Epoch, Instance};

async fn claim(leases: &Arc<dyn Leases>, id: u16, epoch: i64) -> Swap {
    let seen = Seen::from(leases).await;
    let expected = seen.shards.get(&shard(id)).map(|record| record.revision.clone());
    let holder = Instance::new("a#1");
    let claim = Claim { shard: shard(id), expected, holder, epoch: Epoch::new(epoch), generation: 1 };
    leases.claim(&claim).await.expect("an answer")
}

/// The snapshot has all that was there before.
pub async fn a_watch_begins_with_everything(subject: Subject) {
    assert!(Seen::from(&subject.leases).await.runners.is_empty());
    for i in 0..3 {
        subject
            .leases
            .register(&name(&format!("r{i}")), &runner(&format!("r{i}#1")))
            .await
            .expect("registers");
        claim(&subject.leases, i, 1).await;
    }
    let seen = Seen::from(&subject.leases).await;
    assert_eq!(seen.runners.len(), 3);
    assert_eq!(seen.shards.len(), 3);
    assert_eq!(seen.holder(&name("r2")), Some(&runner("r2#1")));
}

/// Between the snapshot and the changes there is no hole.
pub async fn a_watch_misses_nothing_that_happens_while_it_begins(subject: Subject) {
    let mut lock = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    let leases = Arc::clone(&subject.leases);
    let writer = tokio::spawn(async move {
        for epoch in 1..=20 {
            lock = leases.renew(&lock, &runner("a#1")).await.expect("renews");
            claim(&leases, 0, epoch).await;
        }
        lock
    });
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(Seen::from(&subject.leases).await);
        tokio::task::yield_now().await;
    }
    let lock = writer.await.expect("the writer ends");
    for seen in &mut watches {
        let mut epoch = Epoch::UNCLAIMED;
        while epoch < Epoch::new(20) || seen.runners[&name("a")].revision != lock.revision {
            if let Some(record) = seen.shards.get(&shard(0)) {
                assert!(record.epoch >= epoch, "changes of one record come in order");
                epoch = record.epoch;
            }
            if epoch < Epoch::new(20) || seen.runners[&name("a")].revision != lock.revision {
                seen.next().await;
            }
        }
    }
}

/// Deletions are changes.
pub async fn every_watch_tells_of_deletions(subject: Subject) {
    subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    claim(&subject.leases, 0, 1).await;
    let mut watches = [Seen::from(&subject.leases).await, Seen::from(&subject.leases).await];
    subject.backstage.delete_runner(&name("a")).await;
    subject.backstage.delete_shard(&shard(0)).await;
    for seen in &mut watches {
        seen.until(|seen| seen.runners.is_empty() && seen.shards.is_empty()).await;
    }
}

/// A slow reader costs memory at most, and a reader that went away costs nothing.
pub async fn a_watch_that_nobody_reads_holds_nobody_up(subject: Subject) {
    let mut slow = Seen::from(&subject.leases).await;
    drop(Seen::from(&subject.leases).await);
    let mut lock = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    for _ in 0..100 {
        lock = subject.leases.renew(&lock, &runner("a#1")).await.expect("renews");
    }
    slow.until(|seen| seen.runners.get(&name("a")).is_some_and(|record| record.revision == lock.revision))
        .await;
}
