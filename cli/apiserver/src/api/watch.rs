//! watch: a stream that follows a bucket from a revision on.
//!
//! A watcher keeps no queue of its own: it is a cursor in the history that the store keeps for all, and it advances as fast as its client
//! reads. One that falls behind that history is told so with a 410 and closed; nobody else notices.

use super::list::{Selection, revision_of};
use super::{Api, Call, present};
use crate::http::{self, Reply, View};
use crate::schema::FieldError;
use crate::status::{Failure, Named};
use crate::store::{Change, Event, Stored};
use bytes::{BufMut, Bytes, BytesMut};
use rand::RngExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

/// So many events are taken from the history at a time.
const STRIDE: usize = 256;
/// A watch without a timeout of its own ends after this time and up to twice as long.
const TIMEOUT: Duration = Duration::from_secs(1800);

fn check_options(call: &Call) -> Result<(), Failure> {
    let query = &call.query;
    let matching = query.get("resourceVersionMatch");
    let initial = query.flag("sendInitialEvents");
    let mut errors = Vec::new();
    if initial.is_some() && matching != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden("resourceVersionMatch", why));
    }
    if let Some(matching) = matching {
        if initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if matching != "NotOlderThan" {
            let supported = ["NotOlderThan"];
            errors.push(FieldError::not_supported("resourceVersionMatch", json!(matching), &supported));
        }
        if query.get("continue").is_some() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(&Named { group: "meta.k8s.io", name: "ListOptions" }, "", &errors))
}

/// One watch and how far it has come.
struct Watcher {
    api: Arc<Api>,
    call: Call,
    selection: Selection,
    /// Only the object of this name, if not empty.
    name: String,
    cursor: u64,
    /// Frames that are to be sent before the history is looked at.
    ready: Option<Bytes>,
    news: Receiver<u64>,
    deadline: Instant,
    bookmarks: Option<Instant>,
    ended: bool,
    /// The column heads have been sent.
    headed: bool,
}

impl Api {
    /// watch
    pub(super) async fn watch(self: &Arc<Self>, call: &Call) -> Result<Reply, Failure> {
        check_options(call)?;
        let selection = Selection::of(call)?;
        let version = call
            .query
            .get("resourceVersion")
            .map(revision_of)
            .transpose()
            .map_err(|error| Failure::unclassified(error.to_string()))?
            .unwrap_or(0);
        let initial = call.query.flag("sendInitialEvents");
        let timeout = match call.query.number("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
            _ => TIMEOUT + TIMEOUT.mul_f64(rand::rng().random::<f64>()),
        };
        let bookmarks = call.query.flag("allowWatchBookmarks") == Some(true);
        let now = Instant::now();
        let mut watcher = Watcher {
            api: self.clone(),
            call: call.clone(),
            selection,
            name: call.target.name.clone(),
            cursor: version,
            ready: None,
            news: self.store.news(),
            deadline: now + timeout,
            bookmarks: bookmarks.then(|| now + self.limits.bookmark),
            ended: false,
            headed: false,
        };
        if initial == Some(true) {
            self.reach(version).await?;
            watcher.begin_with_state(bookmarks)?;
        } else if version == 0 && initial.is_none() {
            watcher.begin_with_state(false)?;
        } else if version == 0 {
            watcher.cursor = self.store.revision();
        }
        let pieces = futures::stream::unfold(watcher, |mut watcher| async move {
            watcher.next().await.map(|piece| (piece, watcher))
        });
        Ok(http::stream("application/json", pieces))
    }
}

impl Watcher {
    fn is_meant(&self, stored: &Stored) -> bool {
        if self.selection.is_everything() && self.name.is_empty() {
            return true;
        }
        let value = present::value(&self.call.resource, &self.call.version, stored);
        (self.name.is_empty() || crate::object::name(&value) == self.name) && self.selection.matches(&value)
    }

    /// Whether the resource is no longer served, so that nothing will ever happen in it.
    fn is_orphaned(&self) -> bool {
        let resource = &self.call.resource;
        resource.builtin().is_none()
            && self.api.registry.served().get(&resource.group, &resource.plural).is_none()
    }

    /// Sends what there is as if it had just been added, and goes on from there.
    fn begin_with_state(&mut self, marked: bool) -> Result<(), Failure> {
        let bucket = self.call.resource.bucket.clone();
        let listed = self
            .api
            .store
            .list(&bucket, &self.selection.prefix(), None, None, None, |stored| self.is_meant(stored));
        // The present is always at hand.
        let page = listed.map_err(|_| Failure::internal("the present state is gone"))?;
        let mut frames = BytesMut::new();
        for stored in &page.items {
            let text = self.object_text(stored);
            put_frame(&mut frames, Change::Added.as_str(), &text);
        }
        self.cursor = page.revision;
        if marked {
            put_frame(&mut frames, "BOOKMARK", &self.bookmark(true));
        }
        self.ready = Some(frames.freeze()).filter(|frames| !frames.is_empty());
        Ok(())
    }

    /// The object as the client wants to see it.
    fn object_text(&mut self, stored: &Stored) -> Bytes {
        match self.call.view {
            View::Whole => present::text(&self.call.resource, &self.call.version, stored),
            View::Metadata => {
                let value = present::value(&self.call.resource, &self.call.version, stored);
                Bytes::from(present::partial(&value).to_string())
            }
            View::Table => {
                let mut table = present::one(&self.call, stored);
                if self.headed {
                    table["columnDefinitions"] = Value::Null;
                }
                self.headed = true;
                Bytes::from(table.to_string())
            }
        }
    }

    fn bookmark(&mut self, initial_end: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": self.cursor.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.call.view {
            View::Whole => {
                json!({ "kind": self.call.resource.kind, "apiVersion": self.call.api_version(), "metadata": metadata })
            }
            View::Metadata => present::partial(&json!({ "metadata": metadata })),
            View::Table => present::table(&self.call, Vec::new(), &metadata),
        };
        Bytes::from(object.to_string())
    }

    /// The next piece of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(ready) = self.ready.take() {
            return Some(ready);
        }
        while !self.ended {
            // Marked as seen before looking, so that no news between looking and waiting is slept through.
            self.news.borrow_and_update();
            if self.is_orphaned() {
                break;
            }
            match self.api.store.follow(&self.call.resource.bucket, self.cursor, STRIDE) {
                Ok(batch) => {
                    let mut frames = BytesMut::new();
                    for event in &batch.events {
                        self.put_event(&mut frames, event);
                    }
                    let more = batch.cursor < self.api.store.revision() && !batch.events.is_empty();
                    self.cursor = batch.cursor;
                    if !frames.is_empty() {
                        return Some(frames.freeze());
                    }
                    if more {
                        continue;
                    }
                }
                Err(compacted) => {
                    self.ended = true;
                    let gone = Failure::expired(format!(
                        "too old resource version: {} ({})",
                        self.cursor, compacted.oldest
                    ));
                    return Some(frame("ERROR", &Bytes::from(gone.body().to_string())));
                }
            }
            if let Some(piece) = self.wait().await {
                return Some(piece);
            }
        }
        None
    }

    /// Waits for news, or for the time to say something without any.
    async fn wait(&mut self) -> Option<Bytes> {
        let bookmark = self.bookmarks.unwrap_or(self.deadline).min(self.deadline);
        tokio::select! {
            changed = self.news.changed() => {
                self.ended = changed.is_err();
                None
            }
            () = self.api.stop.cancelled() => {
                self.ended = true;
                None
            }
            () = tokio::time::sleep_until(bookmark) => {
                self.ended = Instant::now() >= self.deadline;
                self.bookmarks.as_mut().map(|next| *next = Instant::now() + self.api.limits.bookmark)?;
                let object = self.bookmark(false);
                Some(frame("BOOKMARK", &object))
            }
        }
    }

    /// Puts what an event means to this watcher: an object that comes to be selected is new to it, and one that
    /// no longer is has gone.
    fn put_event(&mut self, frames: &mut BytesMut, event: &Arc<Event>) {
        let whole = self.call.view == View::Whole
            && self.selection.is_everything()
            && self.name.is_empty()
            && self.call.resource.storage.name == self.call.version.name
            && event.revision >= self.call.resource.since
            && self.call.resource.bucket
                == format!("{}/{}", self.call.resource.group, self.call.resource.plural);
        if whole {
            let text = event.frame.get_or_init(|| frame(event.change.as_str(), &event.object.json));
            frames.put_slice(text);
            return;
        }
        let before = event.previous.as_ref().is_some_and(|previous| self.is_meant(previous));
        let after = event.change != Change::Deleted && self.is_meant(&event.object);
        let change = match (before, after) {
            (false, false) => return,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        let text = match (change, &event.previous) {
            (Change::Deleted, Some(previous)) if event.change != Change::Deleted => {
                // Its last state that was selected, at the revision of the change.
                match Stored::new(previous.value.clone(), event.revision) {
                    Ok(stored) => self.object_text(&stored),
                    Err(_) => return,
                }
            }
            _ => self.object_text(&event.object),
        };
        put_frame(frames, change.as_str(), &text);
    }
}

fn put_frame(frames: &mut BytesMut, kind: &str, object: &Bytes) {
    frames.put_slice(b"{\"type\":\"");
    frames.put_slice(kind.as_bytes());
    frames.put_slice(b"\",\"object\":");
    frames.put_slice(object);
    frames.put_slice(b"}\n");
}

fn frame(kind: &str, object: &Bytes) -> Bytes {
    let mut frames = BytesMut::with_capacity(object.len() + 40);
    put_frame(&mut frames, kind, object);
    frames.freeze()
}
