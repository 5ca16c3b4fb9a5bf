//! The rules, one function each.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Answer, Entity, History, Operation, Seen, Violation, Written};

/// How often each message is in a list.
fn counted(messages: &[u64]) -> BTreeMap<u64, usize> {
    let mut times = BTreeMap::new();
    for message in messages {
        *times.entry(*message).or_insert(0) += 1;
    }
    times
}

fn sends(operation: &Operation) -> Option<(u64, Answer)> {
    match operation.action {
        Action::Send { message, answer } => Some((message, answer)),
        Action::Read(_) => None,
    }
}

/// The operations on each entity, also on those that the database knows nothing of.
fn by_entity(history: &History) -> BTreeMap<&str, (Entity, Vec<&Operation>)> {
    let known = history.entities.iter().map(|(id, entity)| (id.as_str(), (entity.clone(), Vec::new())));
    let mut entities: BTreeMap<&str, (Entity, Vec<&Operation>)> = known.collect();
    for operation in &history.operations {
        entities.entry(&operation.entity).or_default().1.push(operation);
    }
    entities
}

/// What was acknowledged took effect once, everything else at most once, and nothing else did.
pub(super) fn effects(history: &History, violations: &mut Vec<Violation>) {
    for (id, (entity, operations)) in by_entity(history) {
        let entity_id = || id.to_owned();
        let times = counted(&entity.handled);
        let sent: BTreeMap<u64, Answer> = operations.iter().copied().filter_map(sends).collect();
        for (message, answer) in &sent {
            match (answer, times.contains_key(message)) {
                (answer, false) if answer.is_acknowledged() && !entity.open.contains(message) => {
                    violations.push(Violation::Lost { entity: entity_id(), message: *message });
                }
                (Answer::NotRun, true) => {
                    violations.push(Violation::RanAfterAll { entity: entity_id(), message: *message });
                }
                _ => {}
            }
        }
        for (message, times) in &times {
            if *times > 1 {
                violations.push(Violation::Doubled { entity: entity_id(), message: *message, times: *times });
            }
            if !sent.contains_key(message) {
                violations.push(Violation::Invented { entity: entity_id(), message: *message });
            }
        }
        violations.extend(
            entity.open.iter().map(|message| Violation::Left { entity: entity_id(), message: *message }),
        );
        let (handled, outcomes) = (entity.handled.len(), entity.outcomes);
        if handled != outcomes {
            violations.push(Violation::Torn { entity: entity_id(), handled, outcomes });
        }
        let Some(rows) = entity.rows.as_deref().map(counted) else { continue };
        for message in times.keys().chain(rows.keys()).collect::<BTreeSet<_>>() {
            let of = |counts: &BTreeMap<u64, usize>| counts.get(message).copied().unwrap_or(0);
            let (state, rows) = (of(&times), of(&rows));
            if state != rows {
                violations.push(Violation::Split { entity: entity_id(), message: *message, state, rows });
            }
        }
    }
}

/// What was acknowledged to a sender comes before what that sender sent afterwards.
pub(super) fn order(history: &History, violations: &mut Vec<Violation>) {
    for (id, (entity, operations)) in by_entity(history) {
        let places = entity.handled.iter().enumerate().map(|(place, message)| (*message, place));
        // Of a message that was handled twice the first place counts; that it was is said elsewhere.
        let places: BTreeMap<u64, usize> = places.rev().collect();
        let mut by_client: BTreeMap<u32, Vec<(&Operation, u64, Answer, usize)>> = BTreeMap::new();
        for operation in operations {
            if let Some((message, answer)) = sends(operation)
                && let Some(place) = places.get(&message)
            {
                by_client.entry(operation.client).or_default().push((operation, message, answer, *place));
            }
        }
        for (client, mut sent) in by_client {
            sent.sort_by_key(|(operation, ..)| operation.during.0);
            let mut acknowledged: Vec<_> =
                sent.iter().filter(|(_, _, answer, _)| answer.is_acknowledged()).collect();
            acknowledged.sort_by_key(|(operation, ..)| operation.during.1);
            let mut before = acknowledged.into_iter().peekable();
            // The latest place of all that was acknowledged before.
            let mut latest: Option<(usize, u64)> = None;
            for (operation, later, _, place) in &sent {
                while let Some((_, message, _, place)) =
                    before.next_if(|(earlier, ..)| earlier.during.1 < operation.during.0)
                {
                    latest = latest.max(Some((*place, *message)));
                }
                if let Some((_, earlier)) = latest.filter(|(before, _)| before > place) {
                    let entity = id.to_owned();
                    violations.push(Violation::Disordered { entity, client, earlier, later: *later });
                }
            }
        }
    }
}

/// Nobody is told anything older than what somebody had been told before, or anything that is not so.
pub(super) fn recency(history: &History, violations: &mut Vec<Violation>) {
    for (id, (entity, operations)) in by_entity(history) {
        // What each operation was told; one that sends has added something itself.
        let told = operations.iter().filter_map(|operation| match operation.action {
            Action::Read(seen) => Some((*operation, seen, 0)),
            Action::Send { message, answer: Answer::Handled(place) } => {
                Some((*operation, Seen { length: place, last: Some(message) }, 1))
            }
            Action::Send { .. } => None,
        });
        let told: Vec<_> = told.collect();
        for (operation, seen, _) in &told {
            let last = seen.length.checked_sub(1).map(|last| entity.handled.get(last).copied());
            if last != seen.last.map(Some) {
                let (entity, client) = (id.to_owned(), operation.client);
                violations.push(Violation::Dirty { entity, client, seen: *seen });
            }
        }
        let mut begun: Vec<_> = told.iter().collect();
        begun.sort_by_key(|(operation, ..)| operation.during.0);
        let mut ended: Vec<_> = told.iter().collect();
        ended.sort_by_key(|(operation, ..)| operation.during.1);
        let (mut ended, mut known) = (ended.into_iter().peekable(), 0);
        for (operation, seen, added) in begun {
            while let Some((_, seen, _)) =
                ended.next_if(|(earlier, ..)| earlier.during.1 < operation.during.0)
            {
                known = known.max(seen.length);
            }
            if seen.length < known + added {
                let (entity, client, length) = (id.to_owned(), operation.client, seen.length);
                violations.push(Violation::Stale { entity, client, length, known });
            }
        }
    }
}

/// One instance per shard and epoch, and epochs only rise.
pub(super) fn epochs(history: &History, violations: &mut Vec<Violation>) {
    let claimants: BTreeMap<(&str, i64), &str> = history
        .claims
        .iter()
        .map(|Written { shard, epoch, instance }| ((shard.as_str(), *epoch), instance.as_str()))
        .collect();
    let mut writers: BTreeMap<(&str, i64), &str> = BTreeMap::new();
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    for claim in &history.claims {
        let claimant = claimants.get(&(claim.shard.as_str(), claim.epoch)).copied().unwrap_or_default();
        if claimant != claim.instance {
            violations.push(two_writers(claim, claimant));
        }
    }
    // Each kind of trouble is told once per shard, epoch and instance, however often it was written.
    let mut told = BTreeSet::new();
    for write in &history.writes {
        let key = (write.shard.as_str(), write.epoch);
        let newer = newest.entry(write.shard.as_str()).or_insert(write.epoch);
        let outdated = (write.epoch < *newer).then_some(*newer);
        *newer = write.epoch.max(*newer);
        let writer = *writers.entry(key).or_insert(&write.instance);
        let claimant = claimants.get(&key).copied();
        let fine =
            outdated.is_none() && writer == write.instance && claimant == Some(write.instance.as_str());
        if fine || !told.insert((key, write.instance.as_str(), outdated.is_some())) {
            continue;
        }
        if let Some(newer) = outdated {
            violations.push(Violation::Outdated {
                shard: write.shard.clone(),
                instance: write.instance.clone(),
                epoch: write.epoch,
                newer,
            });
        }
        if writer != write.instance {
            violations.push(two_writers(write, writer));
        }
        if claimant != Some(write.instance.as_str()) {
            violations.push(Violation::Usurped {
                shard: write.shard.clone(),
                epoch: write.epoch,
                instance: write.instance.clone(),
                claimant: claimant.map(str::to_owned),
            });
        }
    }
}

fn two_writers(write: &Written, first: &str) -> Violation {
    Violation::TwoWriters {
        shard: write.shard.clone(),
        epoch: write.epoch,
        first: first.to_owned(),
        second: write.instance.clone(),
    }
}
