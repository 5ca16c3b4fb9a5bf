use super::*;

#[test]
fn those_who_were_there_before_the_observer_count_at_once() {
    let mut observer = Observer::new(instance(ME), Timing::default(), SETTLE);
    let record = |holder: &str| RunnerRecord {
        name: name(holder),
        holder: Some(runner(holder, State::Ready)),
        revision: Revision::new(holder),
    };
    let runners = vec![record("a"), record(ME)];
    let now = Moment::new(SETTLE);
    let held = ShardRecord {
        shard: shard(0),
        holder: Some(instance("a")),
        epoch: Epoch::new(1),
        generation: 1,
        revision: Revision::new("1"),
    };
    observer.apply(Event::Snapshot(Snapshot { runners, shards: vec![held] }), now);
    assert_eq!(observer.members().len(), 1);
    assert_eq!(observer.deadline(), Some(now + SETTLE), "the observer itself joins");
    observer.tick(now + SETTLE);
    assert_eq!(observer.members().len(), 2);
}

#[test]
fn while_nobody_holds_a_shard_whoever_joins_counts_at_once() {
    let mut world = World::with(&[]);
    assert_eq!(world.names(), [ME]);
    world.renew("a");
    assert_eq!(world.names(), ["a", ME]);
    world.hold(0, Some(ME));
    world.renew("b");
    assert_eq!(world.names(), ["a", ME], "a shard may have to move to it");
}

#[test]
fn several_joins_are_one_change_after_the_wait() {
    let mut world = World::with(&["a"]);
    world.hold(0, Some("a"));
    world.observer.take_changes();
    world.renew("b");
    world.pass(400);
    world.renew("c");
    world.pass(599);
    assert_eq!(world.observer.take_changes(), Changes::default());
    assert_eq!(world.names(), ["a", ME]);
    world.pass(1);
    assert!(world.observer.take_changes().reassign);
    assert_eq!(world.names(), ["a", "b", "c", ME]);
}

#[test]
fn a_runner_joins_when_it_is_ready() {
    let mut world = World::with(&[]);
    world.hold(0, Some(ME));
    world.say("a", State::Starting);
    world.pass(5_000);
    assert_eq!(world.members()[0], ("a".to_owned(), State::Starting));
    world.renew("a");
    assert_eq!(world.names(), [ME]);
    world.pass(1_000);
    assert_eq!(world.members()[0], ("a".to_owned(), State::Ready));
}

#[test]
fn a_death_counts_at_once_and_takes_those_along_who_joined() {
    let mut world = World::with(&["a"]);
    world.hold(0, Some("a"));
    world.renew("b");
    world.apply(Event::Terminated(instance("a")));
    assert!(world.observer.take_changes().reassign);
    assert_eq!(world.names(), ["b", ME]);
}

#[test]
fn a_drain_counts_at_once_and_takes_those_along_who_joined() {
    let mut world = World::with(&["a"]);
    world.hold(0, Some("a"));
    world.renew("b");
    world.say("a", State::Draining);
    assert_eq!(world.names(), ["a", "b", ME]);
    assert_eq!(world.members()[0].1, State::Draining);
}

#[test]
fn a_shard_that_becomes_free_ends_the_wait() {
    let mut world = World::with(&["a"]);
    world.hold(0, Some("a"));
    world.renew("b");
    assert_eq!(world.names(), ["a", ME]);
    world.hold(0, None);
    assert_eq!(world.names(), ["a", "b", ME]);
}

#[test]
fn one_who_already_holds_shards_counts_at_once() {
    let mut world = World::with(&["a"]);
    world.hold(0, Some("a"));
    world.pass(10_000);
    assert_eq!(world.names(), [ME]);
    world.renew("a");
    assert_eq!(world.names(), ["a", ME], "it never lost what it holds");
    assert_eq!(world.observer.holders().get(&shard(0)), Some(&instance("a")));
}

#[test]
fn renewals_change_nothing() {
    let mut world = World::with(&["a"]);
    world.hold(0, Some("a"));
    world.observer.take_changes();
    world.renew("a");
    world.pass(3_000);
    assert_eq!(world.observer.take_changes(), Changes::default());
}

#[test]
fn a_new_weight_counts_at_once() {
    let mut world = World::with(&["a"]);
    world.observer.take_changes();
    let mut heavier = runner("a", State::Ready);
    heavier.member.weight = 200;
    let record = world.record("a", Some(heavier));
    world.apply(Event::Runner(record));
    assert!(world.observer.take_changes().reassign);
}
