//! Asks Kubernetes who is calling and what they may do.
//!
//! A token is shown to the API server (TokenReview), and what its bearer wants is asked for in the words of RBAC (SubjectAccessReview): what
//! [`Action::attributes`] says, in the API group `cleat.dev` and in the namespace of the Cluster. Both answers are kept for a while, so a
//! busy gateway asks once or twice a minute per caller, and, as it asks again before an answer runs out, none of its calls waits for
//! that. If the API server cannot be reached, what it said last counts a while longer, and nobody waits for it either.

use std::collections::HashMap;
use std::error::Error;
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
    /// How long the API server has to answer. One that did not is taken for away for twice as long.
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
pub struct Kubernetes(Arc<Reviewer>);

struct Reviewer {
    client: Client,
    namespace: String,
    options: Options,
    users: Answers<TokenDigest, Option<Arc<User>>>,
    decisions: Answers<(TokenDigest, Action), Decision>,
    reviews: Semaphore,
    /// When the API server last failed to answer, if it has not answered since.
    failed: Mutex<Option<Instant>>,
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
        Self(Arc::new(Reviewer {
            client,
            namespace: namespace.into(),
            users: Answers::new(options.entries),
            decisions: Answers::new(options.entries),
            reviews: Semaphore::new(options.reviews),
            failed: Mutex::default(),
            options,
        }))
    }
}

impl Reviewer {
    /// How long an answer counts, and how long it counts if there is no newer one.
    fn lasts(&self, is_yes: bool) -> Lasts {
        if is_yes {
            Lasts { fresh: self.options.allowed, stale: self.options.grace.max(self.options.allowed) }
        } else {
            Lasts { fresh: self.options.denied, stale: self.options.denied }
        }
    }

    /// What the API server says to a question, or has said a moment ago.
    async fn answer<Q: Question>(self: &Arc<Self>, question: Q) -> Result<Q::Answer, Denied> {
        let key = question.key();
        let kept = question.answers(self).get(&key);
        match kept {
            Some(answer) if answer.is_fresh() || self.is_away() => {
                if answer.is_due() && question.answers(self).is_mine_to_ask(&key, self.options.patience) {
                    let reviewer = Arc::clone(self);
                    tokio::spawn(async move { reviewer.ask(&question, key).await.inspect_err(counts_on) });
                }
                Ok(answer.value)
            }
            Some(answer) => Ok(self.ask(&question, key).await.inspect_err(counts_on).unwrap_or(answer.value)),
            None => self.ask(&question, key).await.map_err(|error| {
                tracing::warn!(error = error.as_ref() as &dyn Error, "nobody can say who is calling");
                Denied::Unavailable(error)
            }),
        }
    }

    /// Puts a question to the API server and keeps what it says.
    async fn ask<Q: Question>(&self, question: &Q, key: Q::Key) -> Result<Q::Answer, Arc<Failure>> {
        let asked = async {
            let _turn = self.reviews.acquire().await;
            question.put(self).await
        };
        let error: Arc<Failure> = match tokio::time::timeout(self.options.patience, asked).await {
            Ok(Ok(value)) => {
                self.note(None);
                question.answers(self).put(key, value.clone(), self.lasts(Q::is_yes(&value)));
                return Ok(value);
            }
            Ok(Err(error)) => Arc::new(error),
            Err(late) => Arc::new(late),
        };
        self.note(Some(Instant::now()));
        Err(error)
    }

    fn note(&self, failed: Option<Instant>) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }

    /// Whether it is not worth waiting for the API server just now.
    fn is_away(&self) -> bool {
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.is_some_and(|failed| failed.elapsed() < self.options.patience * 2)
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
        let user = self.0.answer(Bearer { token: token.to_owned(), digest }).await?;
        let Some(user) = user else {
            return Err(Denied::Unauthenticated("the API server does not know this token".to_owned()));
        };
        let access = Access { user: Arc::clone(&user), digest, action: action.clone() };
        match self.0.answer(access).await? {
            Decision::Allowed => Ok(Caller { user: Some(Arc::clone(&user.name)) }),
            Decision::Denied(why) => Err(Denied::Forbidden { user: user.name.as_ref().to_owned(), why }),
        }
    }
}

/// What the API server can be asked.
trait Question: Send + Sync + 'static {
    type Key: Eq + Hash + Send;
    type Answer: Clone + Send;

    fn key(&self) -> Self::Key;
    fn answers<'a>(&self, reviewer: &'a Reviewer) -> &'a Answers<Self::Key, Self::Answer>;
    fn is_yes(answer: &Self::Answer) -> bool;
    fn put(&self, reviewer: &Reviewer) -> impl Future<Output = Result<Self::Answer, kube::Error>> + Send;
}

/// Whose token is it?
struct Bearer {
    token: String,
    digest: TokenDigest,
}

impl Question for Bearer {
    type Key = TokenDigest;
    type Answer = Option<Arc<User>>;

    fn key(&self) -> TokenDigest {
        self.digest
    }

    fn answers<'a>(&self, reviewer: &'a Reviewer) -> &'a Answers<TokenDigest, Self::Answer> {
        &reviewer.users
    }

    fn is_yes(user: &Self::Answer) -> bool {
        user.is_some()
    }

    async fn put(&self, reviewer: &Reviewer) -> Result<Self::Answer, kube::Error> {
        reviewer.review_token(&self.token).await
    }
}

/// May they do that?
struct Access {
    user: Arc<User>,
    digest: TokenDigest,
    action: Action,
}

impl Question for Access {
    type Key = (TokenDigest, Action);
    type Answer = Decision;

    fn key(&self) -> Self::Key {
        (self.digest, self.action.clone())
    }

    fn answers<'a>(&self, reviewer: &'a Reviewer) -> &'a Answers<Self::Key, Decision> {
        &reviewer.decisions
    }

    fn is_yes(decision: &Decision) -> bool {
        *decision == Decision::Allowed
    }

    async fn put(&self, reviewer: &Reviewer) -> Result<Decision, kube::Error> {
        reviewer.review_access(&self.user, &self.action).await
    }
}

/// Why there is no answer.
type Failure = dyn Error + Send + Sync;

fn counts_on(error: &Arc<Failure>) {
    tracing::warn!(error = error.as_ref() as &dyn Error, "what the API server said last counts");
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
    /// Until then somebody else sees to a newer one.
    asked: Option<Instant>,
}

impl<V> Answer<V> {
    /// Whether it is time to ask again, before it runs out. A no is not asked for again before somebody wants to know.
    fn is_due(&self) -> bool {
        self.lasts.fresh < self.lasts.stale && self.said.elapsed() >= self.lasts.fresh / 2
    }

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

    /// Whether nobody else has been asking for a newer answer for the last while; the caller is the one from now on.
    fn is_mine_to_ask(&self, key: &K, patience: Duration) -> bool {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answer) = kept.get_mut(key) else { return false };
        let now = Instant::now();
        let is_mine = answer.asked.is_none_or(|until| until <= now);
        if is_mine {
            answer.asked = Some(now + patience);
        }
        is_mine
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
        kept.insert(key, Answer { value, said: Instant::now(), lasts, asked: None });
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
