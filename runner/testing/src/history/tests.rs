//! Histories of a correct cluster are let pass, and each way of breaking one is found.

mod cluster;

use proptest::prelude::*;

use self::cluster::{choices, history};
use super::*;

/// Two clients, one entity, one hand-over: all is well.
fn sound() -> History {
    let send = |client, message, answer, during| Operation {
        client,
        entity: "a".into(),
        action: Action::Send { message, answer },
        during,
    };
    let read = |client, length, last, during| Operation {
        client,
        entity: "a".into(),
        action: Action::Read(Seen { length, last }),
        during,
    };
    let written = |epoch, instance: &str| Written { shard: "0".into(), epoch, instance: instance.into() };
    History {
        operations: vec![
            read(2, 0, None, (0, 1)),
            send(1, 10, Answer::Handled(1), (2, 3)),
            send(1, 11, Answer::Accepted, (4, 5)),
            read(2, 1, Some(10), (4, 6)),
            send(2, 20, Answer::Unknown, (7, 8)),
            send(1, 12, Answer::NotRun, (7, 8)),
            send(1, 13, Answer::Handled(3), (9, 10)),
            read(2, 4, Some(20), (11, 12)),
        ],
        entities: [(
            "a".to_owned(),
            Entity {
                handled: vec![10, 11, 13, 20],
                outcomes: 4,
                open: vec![],
                rows: Some(vec![20, 13, 11, 10]),
            },
        )]
        .into(),
        claims: vec![written(1, "x"), written(2, "y")],
        writes: vec![written(1, "x"), written(1, "x"), written(2, "y")],
    }
}

/// What a change of the sound history is called.
fn broken(change: impl FnOnce(&mut History)) -> Vec<Violation> {
    let mut history = sound();
    change(&mut history);
    history.check()
}

fn entity(history: &mut History) -> &mut Entity {
    history.entities.get_mut("a").unwrap()
}

fn answer(history: &mut History, place: usize, answered: Answer) {
    let Action::Send { answer, .. } = &mut history.operations[place].action else { panic!("a read") };
    *answer = answered;
}

#[test]
fn a_sound_history_has_nothing_to_say_about() {
    assert_eq!(sound().check(), []);
}

#[test]
fn a_message_that_was_acknowledged_and_is_nowhere_is_lost() {
    let lost = broken(|history| {
        entity(history).handled = vec![10, 13, 20];
        entity(history).rows = None;
        entity(history).outcomes = 3;
        answer(history, 6, Answer::Handled(2));
        history.operations.pop();
    });
    assert_eq!(lost, [Violation::Lost { entity: "a".into(), message: 11 }]);
    // Also when the database has never heard of the entity.
    let gone = broken(|history| history.entities.clear());
    assert!(gone.contains(&Violation::Lost { entity: "a".into(), message: 10 }), "{gone:?}");
}

#[test]
fn a_message_that_takes_effect_twice_is_doubled_also_if_its_sender_knows_nothing() {
    for message in [11, 20] {
        let doubled = broken(|history| {
            entity(history).handled.push(message);
            entity(history).outcomes += 1;
            entity(history).rows = None;
        });
        assert_eq!(doubled, [Violation::Doubled { entity: "a".into(), message, times: 2 }]);
    }
}

#[test]
fn a_message_that_was_not_run_must_have_no_effect() {
    let ran = broken(|history| {
        entity(history).handled.push(12);
        entity(history).rows = None;
        entity(history).outcomes += 1;
    });
    assert_eq!(ran, [Violation::RanAfterAll { entity: "a".into(), message: 12 }]);
}

#[test]
fn a_message_that_nobody_sent_is_invented() {
    let invented = broken(|history| {
        entity(history).handled.push(99);
        entity(history).rows = None;
        entity(history).outcomes += 1;
    });
    assert_eq!(invented, [Violation::Invented { entity: "a".into(), message: 99 }]);
}

#[test]
fn a_message_that_still_waits_at_the_end_is_left() {
    let left = broken(|history| entity(history).open.push(20));
    assert_eq!(left, [Violation::Left { entity: "a".into(), message: 20 }]);
}

#[test]
fn an_effect_without_its_reply_is_torn() {
    let torn = broken(|history| entity(history).outcomes = 3);
    assert_eq!(torn, [Violation::Torn { entity: "a".into(), handled: 4, outcomes: 3 }]);
}

#[test]
fn a_row_that_did_not_commit_with_its_message_is_split() {
    let missing = broken(|history| entity(history).rows = Some(vec![10, 11, 20]));
    assert_eq!(missing, [Violation::Split { entity: "a".into(), message: 13, state: 1, rows: 0 }]);
    let twice = broken(|history| entity(history).rows = Some(vec![10, 11, 13, 13, 20]));
    assert_eq!(twice, [Violation::Split { entity: "a".into(), message: 13, state: 1, rows: 2 }]);
}

#[test]
fn messages_of_one_sender_in_another_order_are_disordered() {
    let disordered = broken(|history| {
        entity(history).handled = vec![10, 13, 11, 20];
        answer(history, 6, Answer::Handled(2));
    });
    let expected = Violation::Disordered { entity: "a".into(), client: 1, earlier: 11, later: 13 };
    assert_eq!(disordered, [expected]);
}

#[test]
fn what_nobody_acknowledged_may_come_later_than_what_was_sent_after_it() {
    let fine = broken(|history| {
        answer(history, 2, Answer::Unknown);
        entity(history).handled = vec![10, 13, 20, 11];
        answer(history, 6, Answer::Handled(2));
        history.operations.pop();
    });
    assert_eq!(fine, []);
}

#[test]
fn an_answer_from_an_old_memory_is_stale() {
    let stale =
        broken(|history| history.operations[7].action = Action::Read(Seen { length: 2, last: Some(11) }));
    assert_eq!(stale, [Violation::Stale { entity: "a".into(), client: 2, length: 2, known: 3 }]);
    // A question that was put before the newer answer was given may have either.
    let fine = broken(|history| {
        history.operations[7].action = Action::Read(Seen { length: 2, last: Some(11) });
        history.operations[7].during = (9, 12);
    });
    assert_eq!(fine, []);
}

#[test]
fn two_messages_cannot_have_the_same_place() {
    let stale = broken(|history| {
        answer(history, 2, Answer::Handled(1));
    });
    assert!(
        stale.contains(&Violation::Stale { entity: "a".into(), client: 1, length: 1, known: 1 }),
        "{stale:?}"
    );
}

#[test]
fn an_answer_that_was_never_committed_is_dirty() {
    for seen in [
        Seen { length: 5, last: Some(20) },
        Seen { length: 4, last: Some(13) },
        Seen { length: 4, last: None },
    ] {
        let dirty = broken(|history| history.operations[7].action = Action::Read(seen));
        assert_eq!(dirty, [Violation::Dirty { entity: "a".into(), client: 2, seen }]);
    }
}

#[test]
fn two_instances_in_one_epoch_are_found_whoever_claimed_it() {
    let two = broken(|history| history.writes[1].instance = "y".into());
    let (first, second, shard) = ("x".to_owned(), "y".to_owned(), "0".to_owned());
    let usurped = Violation::Usurped {
        shard: shard.clone(),
        epoch: 1,
        instance: second.clone(),
        claimant: Some(first.clone()),
    };
    assert_eq!(two, [Violation::TwoWriters { shard, epoch: 1, first, second }, usurped]);
    let claims = broken(|history| {
        history.claims.push(Written { shard: "0".into(), epoch: 2, instance: "z".into() });
    });
    assert!(
        matches!(claims[..], [Violation::TwoWriters { epoch: 2, .. }, Violation::Usurped { .. }]),
        "{claims:?}"
    );
}

#[test]
fn a_write_of_an_old_epoch_after_a_newer_one_is_outdated() {
    let outdated = broken(|history| history.writes.swap(1, 2));
    let expected = Violation::Outdated { shard: "0".into(), instance: "x".into(), epoch: 1, newer: 2 };
    assert_eq!(outdated, [expected]);
}

#[test]
fn a_write_in_an_epoch_that_nobody_claimed_is_usurped() {
    let usurped = broken(|history| {
        history.claims.pop();
    });
    let expected = Violation::Usurped { shard: "0".into(), epoch: 2, instance: "y".into(), claimant: None };
    assert_eq!(usurped, [expected]);
}

type Index = proptest::sample::Index;

proptest! {
    #[test]
    fn whatever_a_correct_cluster_does_is_let_pass(choices in choices()) {
        prop_assert_eq!(history(&choices).check(), []);
    }

    #[test]
    fn whatever_message_is_taken_out_of_a_history_is_missed(choices in choices(), at: Index) {
        let mut history = history(&choices);
        let acknowledged = history.operations.iter().filter_map(|operation| match operation.action {
            Action::Send { message, answer } if answer.is_acknowledged() => Some((operation.entity.clone(), message)),
            _ => None,
        });
        let acknowledged: Vec<_> = acknowledged.collect();
        prop_assume!(!acknowledged.is_empty());
        let (entity, message) = acknowledged[at.index(acknowledged.len())].clone();
        history.entities.get_mut(&entity).unwrap().handled.retain(|handled| *handled != message);
        let lost = Violation::Lost { entity, message };
        prop_assert!(history.check().contains(&lost));
    }

    #[test]
    fn whatever_message_is_put_into_a_history_again_is_found(choices in choices(), at: Index, to: Index) {
        let mut history = history(&choices);
        let handled = history.entities.iter().flat_map(|(id, entity)| entity.handled.iter().map(|m| (id.clone(), *m)));
        let handled: Vec<_> = handled.collect();
        prop_assume!(!handled.is_empty());
        let (entity, message) = handled[at.index(handled.len())].clone();
        let list = &mut history.entities.get_mut(&entity).unwrap().handled;
        list.insert(to.index(list.len() + 1), message);
        let doubled = Violation::Doubled { entity, message, times: 2 };
        prop_assert!(history.check().contains(&doubled));
    }

    #[test]
    fn whatever_answer_is_made_older_is_found(choices in choices(), at: Index) {
        let mut history = history(&choices);
        let told = |operation: &Operation| match operation.action {
            Action::Read(seen) => seen.length,
            Action::Send { answer: Answer::Handled(place), .. } => place,
            Action::Send { .. } => 0,
        };
        // Reads of what somebody had been told before they began.
        let reads = history.operations.iter().enumerate().filter(|(_, read)| {
            let known = |earlier: &Operation| {
                earlier.entity == read.entity && earlier.during.1 < read.during.0 && told(earlier) == told(read)
            };
            matches!(read.action, Action::Read(seen) if seen.length > 0) && history.operations.iter().any(known)
        });
        let reads: Vec<_> = reads.map(|(place, _)| place).collect();
        prop_assume!(!reads.is_empty());
        let read = reads[at.index(reads.len())];
        let (id, length) = (history.operations[read].entity.clone(), told(&history.operations[read]) - 1);
        let last = length.checked_sub(1).map(|last| history.entities[&id].handled[last]);
        history.operations[read].action = Action::Read(Seen { length, last });
        let stale = |violation: &Violation| matches!(violation, Violation::Stale { entity, .. } if *entity == id);
        prop_assert!(history.check().iter().any(stale));
    }

    #[test]
    fn whatever_write_comes_too_late_is_found(choices in choices(), at: Index) {
        let mut history = history(&choices);
        let followed = |write: &&Written| {
            history.writes.iter().any(|other| other.shard == write.shard && other.epoch > write.epoch)
        };
        let early: Vec<_> = history.writes.iter().filter(followed).cloned().collect();
        prop_assume!(!early.is_empty());
        let write = early[at.index(early.len())].clone();
        history.writes.push(write.clone());
        let outdated = |violation: &Violation| {
            matches!(violation, Violation::Outdated { shard, epoch, .. } if *shard == write.shard && *epoch == write.epoch)
        };
        prop_assert!(history.check().iter().any(outdated));
    }

    #[test]
    fn whatever_write_is_somebody_elses_is_found(choices in choices(), at: Index) {
        let mut history = history(&choices);
        prop_assume!(!history.writes.is_empty());
        let place = at.index(history.writes.len());
        history.writes[place].instance.push_str("-not");
        let usurped = |violation: &Violation| {
            matches!(violation, Violation::Usurped { instance, .. } if instance.ends_with("-not"))
        };
        prop_assert!(history.check().iter().any(usurped));
    }
}
