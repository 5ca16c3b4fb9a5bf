use super::*;

#[test]
fn a_runner_is_dead_when_its_lock_did_not_change_for_its_duration() {
    let mut world = World::with(&["a"]);
    world.pass(9_999);
    assert_eq!(world.dead(), []);
    world.pass(1);
    assert_eq!(world.dead(), [("a".to_owned(), Death::Silent)]);
    assert_eq!(world.names(), [ME]);
}

#[test]
fn every_renewal_starts_the_duration_again() {
    let mut world = World::with(&["a"]);
    for _ in 0..10 {
        world.pass(9_000);
        world.renew("a");
    }
    assert_eq!(world.dead(), []);
}

#[test]
fn a_runner_that_was_only_slow_is_alive_again_when_it_renews() {
    let mut world = World::with(&["a"]);
    world.pass(10_000);
    world.renew("a");
    assert!(world.observer.is_alive(&instance("a")));
    world.pass(1_000);
    assert_eq!(world.names(), ["a", ME]);
}

#[test]
fn a_reported_end_of_the_process_is_death_at_once_and_for_good() {
    let mut world = World::with(&["a"]);
    world.apply(Event::Terminated(instance("a")));
    assert_eq!(world.dead(), [("a".to_owned(), Death::Terminated)]);
    world.renew("a");
    assert!(!world.observer.is_alive(&instance("a")), "that renewal was on its way when the process ended");
}

#[test]
fn a_new_start_under_the_same_lock_is_the_death_of_the_old_one() {
    let mut world = World::with(&["a#1"]);
    world.hold(0, Some("a#1"));
    world.renew("a#2");
    assert_eq!(world.dead(), [("a#1".to_owned(), Death::Replaced(instance("a#2")))]);
    let vacancy = world.observer.vacancy(&shard(0)).unwrap();
    assert_eq!(vacancy.predecessor, Some(instance("a#1")));
    assert_eq!(vacancy.epoch, Epoch::new(1));
}

#[test]
fn a_released_lock_is_death_at_once() {
    let mut world = World::with(&["a"]);
    let record = world.record("a", None);
    world.apply(Event::Runner(record));
    assert_eq!(world.dead(), [("a".to_owned(), Death::Released)]);
}

#[test]
fn another_start_that_answers_at_the_address_is_death_at_once() {
    let mut world = World::with(&["a#1", "b"]);
    world.pass(10);
    let now = world.now();
    world.observer.answered("a:7000", &instance("a#2"), now, now);
    assert_eq!(world.dead(), [("a#1".to_owned(), Death::Succeeded(instance("a#2")))]);
    world.renew("a#1");
    assert!(!world.observer.is_alive(&instance("a#1")), "that renewal was on its way when the process ended");
}

#[test]
fn an_answer_that_is_older_than_the_present_start_proves_nothing() {
    let mut world = World::with(&["a#1"]);
    let asked = world.now();
    world.pass(10);
    world.renew("a#2");
    world.dead();
    world.observer.answered("a:7000", &instance("a#1"), asked, world.now());
    assert!(world.observer.is_alive(&instance("a#2")));
}

#[test]
fn a_refused_connection_is_death_once_the_renewal_is_overdue() {
    let mut world = World::with(&["a", "b"]);
    world.pass(1_000);
    world.observer.refused(&instance("a"), world.now(), world.now());
    world.pass(3_499);
    assert_eq!(world.dead(), []);
    world.pass(1);
    assert_eq!(world.dead(), [("a".to_owned(), Death::Refused)]);
    assert!(world.observer.is_alive(&instance("b")));
}

#[test]
fn a_refused_connection_is_forgotten_when_the_runner_renews_or_answers() {
    let mut world = World::with(&["a", "b"]);
    world.pass(1_000);
    let asked = world.now();
    world.observer.refused(&instance("a"), asked, asked);
    world.observer.refused(&instance("b"), asked, asked);
    world.pass(1_000);
    world.renew("a");
    world.observer.refused(&instance("a"), asked, world.now());
    world.observer.answered("b:7000", &instance("b"), world.now(), world.now());
    world.pass(6_000);
    assert_eq!(world.dead(), []);
}

#[test]
fn a_deletion_timestamp_is_draining_and_not_death() {
    let mut world = World::with(&["a"]);
    world.apply(Event::Leaving(instance("a")));
    assert_eq!(world.observer.take_changes(), Changes { reassign: true, deaths: Vec::new() });
    assert_eq!(world.members()[0], ("a".to_owned(), State::Draining));
    world.renew("a");
    assert_eq!(world.members()[0], ("a".to_owned(), State::Draining), "it cannot take that back");
}

#[test]
fn a_deleted_lock_is_not_death_until_the_duration_is_over() {
    let mut world = World::with(&["a", "b"]);
    world.apply(Event::RunnerGone(name("a")));
    world.apply(Event::RunnerGone(name("b")));
    world.pass(9_000);
    world.renew("b");
    world.pass(1_000);
    assert_eq!(world.dead(), [("a".to_owned(), Death::Silent)]);
    assert!(world.observer.is_alive(&instance("b")));
}

#[test]
fn a_shard_of_a_holder_without_a_lock_is_vacant_after_the_duration() {
    let mut world = World::with(&[]);
    world.hold(0, Some("stranger"));
    assert_eq!(world.observer.vacancy(&shard(0)), None);
    world.pass(9_999);
    assert_eq!(world.observer.vacancy(&shard(0)), None);
    world.pass(1);
    assert!(world.observer.vacancy(&shard(0)).is_some());
    assert!(world.observer.holders().is_empty());
}

#[test]
fn a_shard_without_a_record_is_vacant() {
    let vacancy = World::with(&[]).observer.vacancy(&shard(7));
    assert_eq!(vacancy, Some(Vacancy { expected: None, epoch: Epoch::UNCLAIMED, predecessor: None }));
}

#[test]
fn the_dead_are_forgotten_when_no_record_names_them() {
    let mut world = World::with(&["a"]);
    world.hold(0, Some("a"));
    let record = world.record("a", None);
    world.apply(Event::Runner(record));
    assert!(world.observer.lives.contains_key(&instance("a")));
    world.hold(0, Some(ME));
    assert!(!world.observer.lives.contains_key(&instance("a")));
}
