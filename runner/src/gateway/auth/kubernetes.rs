//! Asks Kubernetes who is calling and what they may do.
//!
//! A token is shown to the API server (TokenReview), and what its bearer wants is asked for in the words of RBAC (SubjectAccessReview): what
//! [`Action::attributes`] says, in the API group `cleat.dev` and in the namespace of the Cluster. Both answers are kept for a while, so a
//! busy gateway asks once a minute per caller. If the API server cannot be reached, what it said last counts a while longer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{Action, Caller, Credential, Denied, Guard};

/// How long what the API server says counts.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a yes counts before it is asked for again.
    pub allowed: Duration,
    /// How long a no counts.
    pub denied: Duration,
    /// How long a yes counts while the API server cannot be reached, from when it was said.
    pub grace: Duration,
    /// How long the API server has to answer.
    pub patience: Duration,
    /// How many answers are kept.
    pub entries: usize,
    /// How many questions are put at once.
    pub reviews: usize,
    /// What a token must be for; if nothing is said, what the API server itself is called.
    pub audiences: Option<Vec<String>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allowed: Duration::from_secs(60),
            denied: Duration::from_secs(10),
            grace: Duration::from_secs(300),
            patience: Duration::from_secs(5),
            entries: 10_000,
            reviews: 16,
            audiences: None,
        }
    }
}

/// Asks Kubernetes who is calling and what they may do.
pub struct Kubernetes {
    client: Client,
    namespace: String,
    options: Options,
    users: Answers<TokenDigest, Option<Arc<User>>>,
    decisions: Answers<(TokenDigest, Action), Decision>,
    reviews: Semaphore,
}

/// Tokens themselves are not kept.
type TokenDigest = [u8; 32];

#[derive(Debug, Clone, PartialEq)]
struct User {
    name: Arc<str>,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<std::collections::BTreeMap<String, Vec<String>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Allowed,
    Denied(String),
}

impl Kubernetes {
    /// A guard for the runners of a namespace.
    pub fn new(client: Client, namespace: impl Into<String>, options: Options) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            users: Answers::new(options.entries),
            decisions: Answers::new(options.entries),
            reviews: Semaphore::new(options.reviews),
            options,
        }
    }

    /// How long an answer counts, and how long it counts if there is no newer one.
    fn lasts(&self, is_yes: bool) -> Lasts {
        if is_yes {
            Lasts { fresh: self.options.allowed, stale: self.options.grace.max(self.options.allowed) }
        } else {
            Lasts { fresh: self.options.denied, stale: self.options.denied }
        }
    }

    /// What the API server says to a question, unless it was asked a moment ago.
    async fn answer<K: Eq + Hash, V: Clone>(
        &self,
        answers: &Answers<K, V>,
        key: K,
        is_yes: impl Fn(&V) -> bool,
        ask: impl Future<Output = Result<V, kube::Error>>,
    ) -> Result<V, Denied> {
        let kept = answers.get(&key);
        if let Some(answer) = kept.as_ref().filter(|kept| kept.is_fresh()) {
            return Ok(answer.value.clone());
        }
        let asked = async {
            let _turn = self.reviews.acquire().await;
            ask.await
        };
        let error: Arc<dyn std::error::Error + Send + Sync> =
            match tokio::time::timeout(self.options.patience, asked).await {
                Ok(Ok(value)) => {
                    answers.put(key, value.clone(), self.lasts(is_yes(&value)));
                    return Ok(value);
                }
                Ok(Err(error)) => Arc::new(error),
                Err(late) => Arc::new(late),
            };
        match kept {
            Some(answer) => {
                tracing::warn!(
                    error = error.as_ref() as &dyn std::error::Error,
                    "what the API server said last counts"
                );
                Ok(answer.value)
            }
            None => {
                tracing::warn!(
                    error = error.as_ref() as &dyn std::error::Error,
                    "nobody can say who is calling"
                );
                Err(Denied::Unavailable(error))
            }
        }
    }

    /// Whose token it is; none if nobody's.
    async fn review_token(&self, token: &str) -> Result<Option<Arc<User>>, kube::Error> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: self.options.audiences.clone() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.and_then(|user| {
            Some(Arc::new(User {
                name: user.username.filter(|name| !name.is_empty())?.into(),
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
            }))
        }))
    }

    async fn review_access(&self, user: &User, action: &Action) -> Result<Decision, kube::Error> {
        let Some(asked) = action.attributes() else { return Ok(Decision::Allowed) };
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let attributes = ResourceAttributes {
            group: some("cleat.dev"),
            resource: some(asked.resource),
            subresource: some(asked.subresource),
            verb: some(asked.verb),
            name: some(asked.name),
            namespace: some(&self.namespace),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: Some(user.name.as_ref().to_owned()),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(Decision::Allowed);
        }
        let part =
            if asked.subresource.is_empty() { String::new() } else { format!("/{}", asked.subresource) };
        let needed = format!(
            "it takes the verb {} on {}{part}.cleat.dev in namespace {}",
            asked.verb, asked.resource, self.namespace
        );
        let named = if asked.name.is_empty() { String::new() } else { format!(" (name {})", asked.name) };
        Ok(Decision::Denied(needed + &named))
    }
}

#[async_trait]
impl Guard for Kubernetes {
    async fn allow(&self, credential: &Credential, action: &Action) -> Result<Caller, Denied> {
        let Some(token) = credential.token() else {
            return Err(Denied::Unauthenticated("send a token as `Authorization: Bearer …`".to_owned()));
        };
        let digest: TokenDigest = Sha256::digest(token).into();
        let user = self.answer(&self.users, digest, Option::is_some, self.review_token(token)).await?;
        let Some(user) = user else {
            return Err(Denied::Unauthenticated("the API server does not know this token".to_owned()));
        };
        let is_yes = |decision: &Decision| *decision == Decision::Allowed;
        let asked = self.review_access(&user, action);
        match self.answer(&self.decisions, (digest, action.clone()), is_yes, asked).await? {
            Decision::Allowed => Ok(Caller { user: Some(Arc::clone(&user.name)) }),
            Decision::Denied(why) => Err(Denied::Forbidden { user: user.name.as_ref().to_owned(), why }),
        }
    }
}

/// For how long an answer counts.
#[derive(Debug, Clone, Copy)]
struct Lasts {
    fresh: Duration,
    stale: Duration,
}

#[derive(Debug, Clone)]
struct Answer<V> {
    value: V,
    said: Instant,
    lasts: Lasts,
}

impl<V> Answer<V> {
    fn is_fresh(&self) -> bool {
        self.said.elapsed() < self.lasts.fresh
    }

    fn counts(&self) -> bool {
        self.said.elapsed() < self.lasts.stale
    }
}

/// What was said to questions, for as long as it counts.
struct Answers<K, V> {
    kept: Mutex<HashMap<K, Answer<V>>>,
    most: usize,
}

impl<K: Eq + Hash, V: Clone> Answers<K, V> {
    fn new(most: usize) -> Self {
        Self { kept: Mutex::default(), most: most.max(1) }
    }

    fn get(&self, key: &K) -> Option<Answer<V>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|answer| answer.counts()).cloned()
    }

    fn put(&self, key: K, value: V, lasts: Lasts) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.most {
            kept.retain(|_, answer| answer.counts());
        }
        // Whoever floods us with tokens costs the others a question each, and no more.
        if kept.len() >= self.most {
            kept.retain(|_, answer| answer.is_fresh() && answer.lasts.fresh < answer.lasts.stale);
        }
        if kept.len() >= self.most {
            kept.clear();
        }
        kept.insert(key, Answer { value, said: Instant::now(), lasts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_fresh_then_stale_then_gone_and_never_too_many() {
        let answers = Answers::new(3);
        let lasts = Lasts { fresh: Duration::from_secs(60), stale: Duration::from_secs(300) };
        answers.put(1, "yes", lasts);
        tokio::time::advance(Duration::from_secs(61)).await;
        let kept = answers.get(&1).unwrap();
        assert!(!kept.is_fresh());
        tokio::time::advance(Duration::from_secs(240)).await;
        assert!(answers.get(&1).is_none());
        let no = Lasts { fresh: Duration::from_secs(10), stale: Duration::from_secs(10) };
        answers.put(2, "yes", lasts);
        for token in 10..100 {
            answers.put(token, "no", no);
            assert!(answers.kept.lock().unwrap().len() <= 3);
        }
        assert!(answers.get(&2).is_some(), "a flood of strangers does not push out who is known");
    }
}
