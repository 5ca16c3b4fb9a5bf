//! The task that follows everything and does what follows from it.

use super::graph::{Graph, Place};
use crate::api::Api;
use crate::object;
use crate::registry::builtin::{CRD_BUCKET, NAMESPACES_BUCKET};
use crate::store::{Change, Event};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How long work that failed waits before it is tried again.
const RETRY: Duration = Duration::from_millis(200);

pub(super) struct Collector {
    pub(super) api: Arc<Api>,
    pub(super) graph: Graph,
    cursors: HashMap<String, u64>,
    base: u64,
    /// Objects that are to be looked at.
    open: BTreeSet<Place>,
}

/// Works until the server stops.
pub(crate) async fn run(api: Arc<Api>) {
    let mut news = api.store.news();
    let stop = api.stop.clone();
    let mut collector =
        Collector { api, graph: Graph::default(), cursors: HashMap::new(), base: 0, open: BTreeSet::new() };
    collector.restart();
    loop {
        news.borrow_and_update();
        collector.catch_up();
        let failed = collector.work().await;
        let retry =
            async { if failed { tokio::time::sleep(RETRY).await } else { std::future::pending().await } };
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
            () = retry => {}
        }
    }
}

impl Collector {
    /// Builds the index anew from what there is; everything is looked at once.
    fn restart(&mut self) {
        let (all, revision) = self.api.store.snapshot();
        self.graph = Graph::default();
        self.cursors.clear();
        self.base = revision;
        for (bucket, stored) in all {
            let resource_key = key_of(&stored.value);
            let place = Place { bucket, key: resource_key };
            self.graph.put(&place, &stored.value);
            self.open.insert(place);
        }
    }

    /// Takes in all events since the last time.
    fn catch_up(&mut self) {
        for bucket in self.api.store.buckets() {
            let mut cursor = self.cursors.get(&bucket).copied().unwrap_or(self.base);
            loop {
                match self.api.store.follow(&bucket, cursor, 1024) {
                    Ok(batch) => {
                        for event in &batch.events {
                            self.take_in(&bucket, event);
                        }
                        cursor = batch.cursor;
                        if batch.events.is_empty() {
                            break;
                        }
                    }
                    Err(_) => {
                        self.restart();
                        return;
                    }
                }
            }
            self.cursors.insert(bucket, cursor);
        }
    }

    fn take_in(&mut self, bucket: &str, event: &Event) {
        let place = Place { bucket: bucket.to_owned(), key: event.key.clone() };
        let value = &event.object.value;
        if event.change != Change::Deleted {
            self.graph.put(&place, value);
            let matters = object::is_deleting(value) || !object::owners(value).is_empty();
            if matters {
                self.open.insert(place);
            }
            return;
        }
        self.graph.remove(&place);
        self.open.remove(&place);
        self.open.extend(self.graph.dependents(object::uid(value)));
        // Whoever waits for this object's end: owners, its namespace, its definition.
        let served = self.api.registry.served();
        for owner in object::owners(value) {
            if let Some(resource) = served.by_kind(owner.api_version, owner.kind) {
                let key = resource.key(object::namespace(value), owner.name);
                self.open.insert(Place { bucket: resource.bucket.clone(), key });
            }
        }
        let namespace = object::namespace(value);
        if !namespace.is_empty() {
            self.open.insert(Place { bucket: NAMESPACES_BUCKET.to_owned(), key: namespace.to_owned() });
        }
        if let Some((group, plural)) = bucket.split_once('/').filter(|(group, _)| !group.is_empty()) {
            let key = format!("{plural}.{group}");
            self.open.insert(Place { bucket: CRD_BUCKET.to_owned(), key });
        }
    }

    /// Looks at everything that is open. Says whether something has to be tried again.
    async fn work(&mut self) -> bool {
        let mut failed = BTreeSet::new();
        while let Some(place) = self.open.pop_first() {
            if let Err(failure) = self.look_at(&place).await {
                tracing::debug!(?place, %failure, "collection waits");
                failed.insert(place);
            }
            // What this did may have opened something else.
            self.catch_up();
        }
        let again = !failed.is_empty();
        self.open.extend(failed);
        again
    }
}

/// The key of an object in its bucket.
fn key_of(value: &serde_json::Value) -> String {
    match object::namespace(value) {
        "" => object::name(value).to_owned(),
        namespace => format!("{namespace}/{}", object::name(value)),
    }
}
