//! Runner locks.

use super::{Seen, Subject, name, runner};
use crate::lease::{Error, Lock};
use crate::shard::{Instance, State};

/// Every field that a runner gives comes back to the watchers.
pub async fn a_runner_is_seen_as_it_describes_itself(subject: Subject) {
    let mut seen = Seen::from(&subject.leases).await;
    let lock = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    assert_eq!((lock.name.as_str(), lock.instance.as_str()), ("a", "a#1"));
    seen.until(|seen| seen.runners.contains_key(&name("a"))).await;
    assert_eq!(seen.holder(&name("a")), Some(&runner("a#1")));
    assert_eq!(
        seen.runners[&name("a")].revision,
        lock.revision,
        "an observer knows its own renewals by this"
    );
}

/// A renewal is a change, also if it says nothing new.
pub async fn each_renewal_is_seen_with_a_new_revision(subject: Subject) {
    let mut seen = Seen::from(&subject.leases).await;
    let first = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    let second = subject.leases.renew(&first, &runner("a#1")).await.expect("renews");
    assert_ne!(first.revision, second.revision);
    seen.until(|seen| seen.runners.get(&name("a")).is_some_and(|record| record.revision == second.revision))
        .await;

    let mut ready = runner("a#1");
    ready.member.state = State::Ready;
    ready.member.avoids.clear();
    let third = subject.leases.renew(&second, &ready).await.expect("renews");
    assert!(![first.revision, second.revision].contains(&third.revision));
    seen.until(|seen| seen.runners[&name("a")].revision == third.revision).await;
    assert_eq!(seen.holder(&name("a")), Some(&ready));
}

/// A holder that does not know its last revision is still the holder.
pub async fn a_renewal_goes_through_after_an_answer_that_got_lost(subject: Subject) {
    let first = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    subject.leases.renew(&first, &runner("a#1")).await.expect("renews");
    let again = subject.leases.renew(&first, &runner("a#1")).await.expect("renews with an old revision");
    assert_eq!(again.instance, first.instance);
    subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers again");
    subject.leases.renew(&again, &runner("a#1")).await.expect("renews");
}

fn assert_lost(result: Result<Lock, Error>, expected: Option<&str>) {
    match result {
        Err(Error::Lost { holder, .. }) => assert_eq!(holder, expected.map(Instance::new)),
        other => panic!("lost to {expected:?} was expected, not {other:?}"),
    }
}

/// A new start takes the lock from the old one, which learns it with its next renewal and cannot take it back that way.
pub async fn a_lock_that_another_took_is_lost(subject: Subject) {
    let mut seen = Seen::from(&subject.leases).await;
    let first = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    let second = subject.leases.register(&name("a"), &runner("a#2")).await.expect("takes over");
    assert_lost(subject.leases.renew(&first, &runner("a#1")).await, Some("a#2"));
    subject.leases.renew(&second, &runner("a#2")).await.expect("renews");
    seen.until(|seen| seen.holder(&name("a")) == Some(&runner("a#2"))).await;
}

/// A renewal does not bring a deleted lock back. Registering does.
pub async fn a_lock_that_was_deleted_is_lost_and_can_be_taken_again(subject: Subject) {
    let lock = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    subject.backstage.delete_runner(&name("a")).await;
    assert_lost(subject.leases.renew(&lock, &runner("a#1")).await, None);
    let again = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers again");
    assert_ne!(again.revision, lock.revision);
    subject.leases.renew(&again, &runner("a#1")).await.expect("renews");
}

/// Releasing leaves no holder, and can be repeated.
pub async fn a_released_lock_has_no_holder(subject: Subject) {
    let mut seen = Seen::from(&subject.leases).await;
    let lock = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    subject.leases.release(&lock).await.expect("releases");
    seen.until(|seen| seen.runners.get(&name("a")).is_some_and(|record| record.holder.is_none())).await;
    subject.leases.release(&lock).await.expect("releases again");
    assert_lost(subject.leases.renew(&lock, &runner("a#1")).await, None);
    let mut later = Seen::from(&subject.leases).await;
    assert_eq!(later.holder(&name("a")), None);
    subject.leases.register(&name("a"), &runner("a#2")).await.expect("registers");
    later.until(|seen| seen.holder(&name("a")).is_some()).await;
}

/// Whoever has lost the lock has nothing to release.
pub async fn only_the_holder_releases_a_lock(subject: Subject) {
    let first = subject.leases.register(&name("a"), &runner("a#1")).await.expect("registers");
    let second = subject.leases.register(&name("a"), &runner("a#2")).await.expect("takes over");
    subject.leases.release(&first).await.expect("is fine");
    subject.leases.renew(&second, &runner("a#2")).await.expect("still holds it");
    subject.backstage.delete_runner(&name("a")).await;
    subject.leases.release(&second).await.expect("is fine");
}
