//! Following the objects that a selector finds: a list, then what changes, again and again.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

/// What is told of the objects.
#[derive(Debug)]
pub(super) enum Change<K> {
    /// These are all.
    Listed(Vec<K>),
    /// One is new or has changed.
    Applied(K),
    /// One was deleted; this was its last state.
    Deleted(K),
    /// Changes may be missing until the next list.
    Broken,
}

/// What keeps changes from coming.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("the API server ended the watch: {message} ({code} {reason})")]
    Ended { message: String, code: u16, reason: String },
    #[error("the API server has said nothing for too long")]
    Silent,
}

/// How long the server is asked to keep a watch open, in seconds. Then it goes on where it was.
const WATCH: u32 = 290;

/// How long a list, or the beginning of a watch, may take.
const ANSWER: Duration = Duration::from_secs(10);

/// A watch of which nothing is expected is begun anew after so long without a word: one that is idle and one that is dead look the same,
/// and the server sends no bookmarks while nothing of the kind changes anywhere.
const QUIET: Duration = Duration::from_secs(150);

/// How long to wait after the first failure; it doubles.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// A watch that ended this soon was worth nothing: the next waits as after a failure.
const WORTH: Duration = Duration::from_secs(1);

struct Follow<K, F> {
    api: Api<K>,
    selector: String,
    silence: F,
    quiet: Duration,
    state: State<K>,
    /// How long to wait before the next attempt.
    pause: Duration,
    /// Whether it has been told that changes are missing.
    broken: bool,
}

enum State<K> {
    /// Nothing is known, or not enough.
    Unknown,
    /// Everything up to this version has been told.
    Known(String),
    /// And what comes then comes from here.
    Watching { events: BoxStream<'static, kube::Result<WatchEvent<K>>>, version: String, since: Instant },
}

/// Follows the objects that have these labels. `silence` says how long nothing may come before the connection is taken for dead; None
/// if nothing need ever come.
///
/// # Guarantees
/// A list is read from the storage and not from a cache: after [`Change::Broken`] it is no older than that. Between a list and
/// what follows there is no hole. The stream does not end.
pub(super) fn follow<K, F>(api: Api<K>, selector: String, silence: F) -> BoxStream<'static, Change<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    F: Fn() -> Option<Duration> + Send + Sync + 'static,
{
    follow_within(api, selector, silence, QUIET)
}

fn follow_within<K, F>(
    api: Api<K>,
    selector: String,
    silence: F,
    quiet: Duration,
) -> BoxStream<'static, Change<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    F: Fn() -> Option<Duration> + Send + Sync + 'static,
{
    let (state, pause) = (State::Unknown, SHORTEST);
    let follow = Follow { api, selector, silence, quiet, state, pause, broken: false };
    stream::unfold(follow, |mut follow| async { Some((follow.next().await, follow)) }).boxed()
}

impl<K, F> Follow<K, F>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    F: Fn() -> Option<Duration>,
{
    async fn next(&mut self) -> Change<K> {
        loop {
            match self.step().await {
                Ok(Some(change)) => return change,
                Ok(None) => {}
                Err(error) => {
                    self.state = State::Unknown;
                    if !std::mem::replace(&mut self.broken, true) {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, selector = self.selector, "changes are not told any more");
                        return Change::Broken;
                    }
                    self.wait().await;
                }
            }
        }
    }

    /// Goes one step on. Gives what is to be told, if there is something.
    async fn step(&mut self) -> Result<Option<Change<K>>, Trouble> {
        match std::mem::replace(&mut self.state, State::Unknown) {
            State::Unknown => self.list().await.map(Some),
            State::Known(version) => {
                let params = WatchParams::default().labels(&self.selector).timeout(WATCH);
                let begins = timeout(ANSWER, self.api.watch(&params, &version));
                let events = begins.await.map_err(|_| Trouble::Silent)??.boxed();
                self.state = State::Watching { events, version, since: Instant::now() };
                Ok(None)
            }
            State::Watching { events, version, since } => self.read(events, version, since).await,
        }
    }

    async fn list(&mut self) -> Result<Change<K>, Trouble> {
        // No resource version: the server has to look at what is stored now.
        let params = ListParams::default().labels(&self.selector);
        let list = timeout(ANSWER, self.api.list(&params)).await.map_err(|_| Trouble::Silent)??;
        if std::mem::replace(&mut self.broken, false) {
            tracing::info!(selector = self.selector, "changes are told again");
        }
        self.state = State::Known(list.metadata.resource_version.unwrap_or_default());
        Ok(Change::Listed(list.items))
    }

    async fn read(
        &mut self,
        mut events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
        version: String,
        since: Instant,
    ) -> Result<Option<Change<K>>, Trouble> {
        let expected = (self.silence)();
        let event = match timeout(expected.unwrap_or(self.quiet), events.next()).await {
            Ok(event) => event,
            Err(_) if expected.is_some() => return Err(Trouble::Silent),
            Err(_) => {
                tracing::debug!(selector = self.selector, "a quiet watch is begun anew where it was");
                self.state = State::Known(version);
                return Ok(None);
            }
        };
        let Some(event) = event else {
            // The server ends each watch after a while, and another goes on where it was.
            self.state = State::Known(version);
            if since.elapsed() < WORTH {
                self.wait().await;
            }
            return Ok(None);
        };
        let (change, version) = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.resource_version().unwrap_or(version);
                (Some(Change::Applied(object)), version)
            }
            WatchEvent::Deleted(object) => {
                let version = object.resource_version().unwrap_or(version);
                (Some(Change::Deleted(object)), version)
            }
            WatchEvent::Bookmark(bookmark) => (None, bookmark.metadata.resource_version),
            WatchEvent::Error(status) => {
                let (message, code, reason) = (status.message, status.code, status.reason);
                return Err(Trouble::Ended { message, code, reason });
            }
        };
        self.pause = SHORTEST;
        self.state = State::Watching { events, version, since };
        Ok(change)
    }

    async fn wait(&mut self) {
        // Not all runners at once.
        tokio::time::sleep(self.pause.mul_f64(rand::random_range(0.5..1.0))).await;
        self.pause = (self.pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::api::PostParams;
    use kube::config::{Config, KubeConfigOptions, Kubeconfig};

    use super::*;

    fn object(name: &str) -> ConfigMap {
        let labels = serde_json::json!({"metadata": {"name": name, "labels": {"of": "us"}}});
        serde_json::from_value(labels).unwrap()
    }

    #[tokio::test]
    async fn a_quiet_watch_is_no_trouble_and_misses_nothing() {
        let server = cleat_apiserver::start(cleat_apiserver::Options::default()).await.unwrap();
        let config = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let api: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
        api.create(&PostParams::default(), &object("first")).await.unwrap();
        let quiet = Duration::from_millis(100);
        let mut changes = follow_within(api.clone(), "of=us".to_owned(), || None, quiet);
        assert!(matches!(changes.next().await, Some(Change::Listed(items)) if items.len() == 1));
        // Long enough for several watches, none of which has anything to tell.
        let told = timeout(quiet * 15, changes.next()).await;
        assert!(told.is_err(), "{told:?}");
        api.create(&PostParams::default(), &object("second")).await.unwrap();
        let told = timeout(Duration::from_secs(60), changes.next()).await.unwrap();
        assert!(matches!(&told, Some(Change::Applied(one)) if one.name_any() == "second"), "{told:?}");
        server.shutdown().await;
    }
}
