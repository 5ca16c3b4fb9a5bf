use super::*;

const MINUTES: u64 = 300_000;

/// Lets time pass in which nothing happens but ticks, whenever the observer asks for one and every half second.
fn stand_still(world: &mut World, millis: u64) {
    let end = world.now + millis;
    while world.now < end {
        world.now += 500;
        world.observer.tick(world.now());
        let deadline = world.observer.deadline();
        assert!(deadline.is_none_or(|deadline| deadline > world.now()), "asks for a moment that has passed");
    }
}

#[test]
fn an_outage_of_minutes_kills_nobody_and_everybody_has_the_full_duration_after_it() {
    let mut world = World::with(&["a", "b"]);
    for _ in 0..100 {
        stand_still(&mut world, MINUTES / 100);
        world.observer.renewal_failed(world.now());
    }
    assert!(!world.observer.is_attached(world.now()));
    world.renew_me();
    assert!(world.observer.is_attached(world.now()));
    world.pass(9_500);
    world.renew("a");
    assert_eq!(world.dead(), []);
    world.pass(500);
    assert_eq!(world.dead(), [("b".to_owned(), Death::Silent)]);
}

#[test]
fn one_failed_renewal_starts_every_duration_again() {
    let mut world = World::with(&["a"]);
    world.pass(8_000);
    world.observer.renewal_failed(world.now());
    world.pass(9_500);
    assert_eq!(world.dead(), []);
    world.pass(1_000);
    assert_eq!(world.dead(), [("a".to_owned(), Death::Silent)]);
}

#[test]
fn a_watch_that_tells_nothing_and_does_not_know_it_kills_nobody() {
    let mut world = World::with(&["a"]);
    let end = world.now + MINUTES;
    while world.now < end {
        world.now += 500;
        world.revision += 1;
        let lock = Lock {
            name: name(ME),
            instance: instance(ME),
            revision: Revision::new(world.revision.to_string()),
        };
        world.observer.renewed(&lock, world.now(), world.now());
    }
    assert_eq!(world.dead(), []);
    assert!(!world.observer.is_attached(world.now()));
}

#[test]
fn a_watch_that_brings_old_news_kills_nobody() {
    let mut world = World::with(&["a"]);
    let mut late = std::collections::VecDeque::new();
    let end = world.now + MINUTES;
    while world.now < end {
        world.now += 500;
        let record = world.record(ME, Some(runner(ME, State::Ready)));
        let lock = Lock { name: name(ME), instance: instance(ME), revision: record.revision.clone() };
        world.observer.renewed(&lock, world.now(), world.now());
        late.push_back(record);
        // Each comes back five seconds after it was sent.
        if late.len() > 10 {
            let record = late.pop_front().unwrap();
            world.apply(Event::Runner(record));
        }
    }
    assert_eq!(world.dead(), []);
}

#[test]
fn a_stalled_watch_kills_nobody_until_it_has_been_current_for_the_duration() {
    let mut world = World::with(&["a"]);
    world.apply(Event::Stalled);
    world.pass(MINUTES);
    assert_eq!(world.dead(), []);
    world.apply(Event::Current);
    world.pass(9_999);
    assert_eq!(world.dead(), []);
    world.pass(1);
    assert_eq!(world.dead(), [("a".to_owned(), Death::Silent)]);
}

#[test]
fn a_snapshot_after_a_stall_tells_who_is_gone_and_who_is_new() {
    let mut world = World::with(&["a#1", "b"]);
    world.hold(0, Some("b"));
    world.apply(Event::Stalled);
    let runners = vec![
        world.record("a", Some(runner("a#2", State::Ready))),
        world.record("c", Some(runner("c", State::Ready))),
    ];
    world.dead();
    world.apply(Event::Snapshot(Snapshot { runners, shards: Vec::new() }));
    assert_eq!(world.dead(), [("a#1".to_owned(), Death::Replaced(instance("a#2")))]);
    assert!(world.observer.is_alive(&instance("b")), "its lock is gone, which proves nothing");
    assert!(world.observer.vacancy(&shard(0)).is_some(), "but the shard has no record any more");
    assert!(world.observer.is_alive(&instance("c")));
}

#[test]
fn an_observer_that_was_stopped_for_long_kills_nobody_when_it_wakes_up() {
    let mut world = World::with(&["a"]);
    world.now += MINUTES;
    world.observer.tick(world.now());
    world.renew_me();
    assert_eq!(world.dead(), []);
    world.pass(9_999);
    assert_eq!(world.dead(), []);
}

#[test]
fn proofs_count_during_an_outage_but_silence_and_refusals_do_not() {
    let mut world = World::with(&["a", "b", "c#1"]);
    world.now += 1_000;
    world.observer.renewal_failed(world.now());
    world.observer.refused(&instance("a"), world.now(), world.now());
    world.observer.answered("c:7000", &instance("c#2"), world.now(), world.now());
    stand_still(&mut world, MINUTES);
    assert_eq!(world.dead(), [("c#1".to_owned(), Death::Succeeded(instance("c#2")))]);
}

#[test]
fn ticking_when_asked_to_is_enough() {
    let mut world = World::with(&["a"]);
    world.pass(7_000);
    let deadline = world.observer.deadline().unwrap();
    assert_eq!(deadline.since(world.now()), Duration::from_secs(3));
    world.observer.tick(deadline);
    assert_eq!(world.dead(), [("a".to_owned(), Death::Silent)]);
    assert_eq!(world.observer.deadline(), None);
}

#[test]
fn what_a_write_told_does_not_undo_what_the_watch_has_told_since() {
    let mut world = World::with(&["a"]);
    let told = |holder: Option<&str>, revision: &str| ShardRecord {
        shard: shard(0),
        holder: holder.map(Instance::new),
        epoch: Epoch::new(1),
        generation: 1,
        revision: Revision::new(revision),
    };
    // A claim of a shard without a Lease loses to somebody, who frees it before the loser takes in what it was told.
    world.apply(Event::Shard(told(Some("a#1"), "one")));
    world.apply(Event::Shard(told(None, "two")));
    let now = world.now();
    world.observer.learn(&shard(0), None, Some(told(Some("a#1"), "one")), now);
    assert!(world.observer.vacancy(&shard(0)).is_some(), "it is free, and nobody will say so again");
    // What the watch has not told yet is taken in.
    let before = Revision::new("two");
    world.observer.learn(&shard(0), Some(&before), Some(told(Some("a#1"), "three")), now);
    assert_eq!(world.observer.vacancy(&shard(0)), None);
    world.observer.learn(&shard(0), Some(&before), None, now);
    assert_eq!(world.observer.shard(&shard(0)).map(|record| record.revision.as_str()), Some("three"));
}
