use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

fn put(key: &str, expect: Expect, value: i64) -> Mutation {
    Mutation {
        bucket: "things".into(),
        key: key.into(),
        expect,
        object: json!({ "metadata": {}, "value": value }),
        delete: false,
    }
}

fn delete(key: &str, expect: Expect) -> Mutation {
    Mutation { delete: true, ..put(key, expect, -1) }
}

async fn memory(history: History) -> Store {
    Store::open(Arc::new(Memory), history).await.unwrap()
}

#[tokio::test]
async fn a_write_happens_only_if_its_expectation_holds() {
    let store = memory(History::default()).await;
    let first = store.write(put("a", Expect::Absent, 1)).await.unwrap();
    assert!(matches!(store.write(put("a", Expect::Absent, 2)).await, Err(Denied::Exists)));
    assert!(matches!(store.write(put("a", Expect::At(first.revision + 1), 2)).await, Err(Denied::Changed)));
    assert!(matches!(store.write(put("b", Expect::At(first.revision), 2)).await, Err(Denied::Changed)));
    let second = store.write(put("a", Expect::At(first.revision), 2)).await.unwrap();
    assert!(second.revision > first.revision);
    assert_eq!(store.get("things", "a").unwrap().value["value"], 2);
    assert_eq!(second.value["metadata"]["resourceVersion"], second.revision.to_string());
}

#[tokio::test]
async fn of_many_writers_with_the_same_expectation_one_wins() {
    let store = memory(History::default()).await;
    let first = store.write(put("a", Expect::Absent, 0)).await.unwrap().revision;
    let attempts = (0..50).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.write(put("a", Expect::At(first), n)).await.is_ok() })
    });
    let mut won = 0;
    for attempt in attempts.collect::<Vec<_>>() {
        won += u32::from(attempt.await.unwrap());
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn a_follower_behind_the_kept_history_is_told_so() {
    let store = memory(History { events: 3, bytes: usize::MAX }).await;
    let start = store.revision();
    for n in 0..5 {
        store.write(put(&format!("k{n}"), Expect::Absent, n)).await.unwrap();
    }
    assert_eq!(store.follow("things", start, 10).unwrap_err(), Compacted { oldest: start + 2 });
    assert_eq!(store.follow("things", start + 2, 10).unwrap().events.len(), 3);
    assert!(store.list("things", "", None, None, Some(start + 1), |_| true).is_err());
}

#[tokio::test]
async fn objects_and_revisions_survive_a_restart_and_old_cursors_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.db");
    let (kept, last) = {
        let store =
            Store::open(Arc::new(Sqlite::open(&file).await.unwrap()), History::default()).await.unwrap();
        let kept = store.write(put("kept", Expect::Absent, 1)).await.unwrap();
        let gone = store.write(put("gone", Expect::Absent, 1)).await.unwrap();
        let last = store.write(delete("gone", Expect::At(gone.revision))).await.unwrap();
        (kept, last.revision)
    };
    let store = Store::open(Arc::new(Sqlite::open(&file).await.unwrap()), History::default()).await.unwrap();
    assert_eq!(store.revision(), last);
    assert_eq!(store.get("things", "kept").unwrap().json, kept.json);
    assert!(store.get("things", "gone").is_none());
    assert!(store.follow("things", last - 1, 10).is_err());
    assert!(store.follow("never seen", last - 1, 10).is_err());
    let next = store.write(put("new", Expect::Absent, 1)).await.unwrap();
    assert!(next.revision > last);
}

/// What the properties do to a store: keys are few, so that they collide.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, i64),
    Delete(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u8..6, any::<i64>()).prop_map(|(key, value)| Step::Put(key, value)),
        (0u8..6).prop_map(Step::Delete),
    ];
    proptest::collection::vec(step, 1..60)
}

async fn take(store: &Store, step: &Step) {
    let (key, value) = match step {
        Step::Put(key, value) => (format!("k{key}"), Some(*value)),
        Step::Delete(key) => (format!("k{key}"), None),
    };
    let current = store.get("things", &key);
    let expect = current.as_ref().map_or(Expect::Absent, |stored| Expect::At(stored.revision));
    match value {
        Some(value) => drop(store.write(put(&key, expect, value)).await.unwrap()),
        None if current.is_some() => drop(store.write(delete(&key, expect)).await.unwrap()),
        None => {}
    }
}

fn seen(page: &Page) -> Vec<(u64, i64)> {
    page.items.iter().map(|item| (item.revision, item.value["value"].as_i64().unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_follower_that_applies_all_events_has_the_state_of_the_store(steps in steps(), chunk in 1usize..7) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = memory(History::default()).await;
            let mut cursor = store.revision();
            for step in &steps {
                take(&store, step).await;
            }
            let mut copy = BTreeMap::new();
            let mut last = 0;
            loop {
                let batch = store.follow("things", cursor, chunk).unwrap();
                for event in &batch.events {
                    assert!(event.revision > last, "no event twice");
                    last = event.revision;
                    let before = match event.change {
                        Change::Deleted => copy.remove(&event.key),
                        _ => copy.insert(event.key.clone(), event.object.revision),
                    };
                    assert_eq!(before, event.previous.as_ref().map(|previous| previous.revision));
                }
                if cursor == batch.cursor { break }
                cursor = batch.cursor;
            }
            let page = store.list("things", "", None, None, None, |_| true).unwrap();
            assert_eq!(copy.into_values().collect::<Vec<_>>(), page.items.iter().map(|item| item.revision).collect::<Vec<_>>());
        });
    }

    #[test]
    fn pages_of_an_old_revision_are_what_the_store_was_then(steps in steps(), at in 0usize..60, limit in 1usize..4) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = memory(History::default()).await;
            let at = at.min(steps.len());
            for step in &steps[..at] {
                take(&store, step).await;
            }
            let then = store.list("things", "", None, None, None, |_| true).unwrap();
            for step in &steps[at..] {
                take(&store, step).await;
            }
            let mut paged = Vec::new();
            let mut start = None;
            loop {
                let page = store.list("things", "", start.as_deref(), Some(limit), Some(then.revision), |_| true).unwrap();
                paged.extend(seen(&page));
                start = page.next;
                if start.is_none() { break }
            }
            assert_eq!(paged, seen(&then));
        });
    }
}
