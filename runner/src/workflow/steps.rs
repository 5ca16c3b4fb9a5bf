//! What the function of a typed workflow may do: [`Context`] with types.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Context;
use super::activity::{self, Attempted, Failed};
use super::child::{Child, Policy};
use super::native::Execute;
use super::wait::Cancelled;
use crate::entity::{HandlerError, Refusal};
use crate::message::{Defect, EntityAddress, Outcome, codec};

/// What the function of a workflow may do. `self` in `execute` has all of it.
pub trait Steps: Clone + Send + Sync + 'static {
    /// The same without types.
    fn context(&self) -> &Context;

    /// The execution's id.
    fn id(&self) -> &str {
        self.context().id()
    }

    /// Waits, also across crashes and moves, and at no cost.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<Self> {
        self.context().sleep(duration)
    }

    /// The same with a name, for those who look on.
    fn sleep_named(&self, name: &str, duration: Duration) -> impl Future<Output = ()> + Send + use<Self> {
        self.context().sleep_named(name, duration)
    }

    /// Waits until a time, which may have passed.
    fn sleep_until(&self, time: SystemTime) -> impl Future<Output = ()> + Send + use<Self> {
        self.context().sleep_until(time)
    }

    /// What time it is: that of the last thing that happened to the execution.
    fn now(&self) -> SystemTime {
        self.context().now()
    }

    /// A random number, the same whenever the function is replayed.
    fn random(&self) -> u64 {
        self.context().random()
    }

    /// A random UUID, the same whenever the function is replayed.
    fn uuid(&self) -> String {
        self.context().uuid()
    }

    /// Whether to take the new one of two paths: yes, unless this execution has been here with older code.
    fn patched(&self, id: &str) -> bool {
        self.context().patched(id)
    }

    /// Takes a value from outside: it is remembered. If it cannot be read any more, the execution fails.
    fn record<T, F>(&self, name: &str, make: F) -> impl Future<Output = T> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce() -> T + Send + 'static,
    {
        async move {
            match self.context().record(name, make).await {
                Ok(value) => value,
                Err(error) => unreadable(self.context(), name, &error).await,
            }
        }
    }

    /// The next signal of a name. If it is none of this type, the execution fails.
    fn signal<T: DeserializeOwned + Send>(
        &self,
        name: &str,
    ) -> impl Future<Output = T> + Send + use<Self, T> {
        let (context, signalled) = (self.context().clone(), self.context().signal(name));
        let name = name.to_owned();
        async move {
            match codec::decode(&signalled.await) {
                Ok(value) => value,
                Err(error) => unreadable(&context, &name, &error).await,
            }
        }
    }

    /// What somebody promised under a name. If it is none of this type, or will never be kept, the execution fails.
    fn promise<T: DeserializeOwned + Send>(
        &self,
        name: &str,
    ) -> impl Future<Output = T> + Send + use<Self, T> {
        let (context, promised) = (self.context().clone(), self.context().promise(name));
        let name = name.to_owned();
        async move {
            match promised.await {
                Outcome::Success(value) => match codec::decode(&value) {
                    Ok(value) => value,
                    Err(error) => unreadable(&context, &name, &error).await,
                },
                outcome => context.fail(outcome).await,
            }
        }
    }

    /// Comes back when the execution is cancelled. From this call on the function looks after that itself, and is not stopped.
    fn cancelled(&self) -> Cancelled {
        self.context().cancelled()
    }

    /// What to do if the execution fails or is cancelled later. All such things are done in reverse, each as durably as the rest.
    fn compensate<S, T, E>(&self, undo: impl FnOnce(&Self) -> S + Send + 'static)
    where
        S: IntoFuture<Output = Result<T, E>>,
        S::IntoFuture: Send + 'static,
        E: fmt::Display,
    {
        let me = self.clone();
        self.context().compensate(move || {
            let undoing = undo(&me).into_future();
            Box::pin(async move { undoing.await.map(|_| ()).map_err(|error| error.to_string()) })
        });
    }

    /// Shows a value to queries, until another one is shown under the same name.
    fn show<T: Serialize + ?Sized>(&self, name: &str, value: &T) {
        if let Err(error) = self.context().show(name, value) {
            tracing::warn!(execution = %self.id(), name, error = &error as &dyn std::error::Error, "cannot be shown");
        }
    }

    /// Starts another workflow and waits for its end.
    fn child<W: Execute>(&self, input: &W::Input) -> ChildStep<W> {
        ChildStep::new(self.context(), input)
    }

    /// Ends this run and begins the execution anew with another input and an empty journal. Signals that were not read are kept.
    fn continue_as_new<I: Serialize + Sync + ?Sized>(
        &self,
        input: &I,
    ) -> impl Future<Output = super::Gone> + Send {
        async move {
            match self.context().continue_as_new(input).await {
                Ok(gone) => gone,
                Err(error) => unreadable(self.context(), "the input", &error).await,
            }
        }
    }
}

async fn unreadable<T>(context: &Context, what: &str, error: &codec::Error) -> T {
    let error = crate::entity::Error::codec("a value", error);
    let message = format!("{what}: {error}");
    context.fail(Outcome::defect(error.reason().to_owned(), message)).await
}

/// Why a step has nothing to give, with all that is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error<E> {
    /// Its own error.
    #[error("{0}")]
    Failed(E),
    /// It has no error of its own to give: it took too long, panicked, or never worked.
    #[error("{}: {}", .0.kind, .0.message)]
    Defect(Defect),
}

/// An activity of a workflow, before it is done. Awaiting it gives what it gives; if that is nothing of its own (it timed out, or
/// panicked), the execution fails. [`outcome`](Self::outcome) tells that, too.
#[must_use = "an activity is done when it is awaited"]
pub struct Step<T, E> {
    context: Context,
    name: &'static str,
    options: activity::Options,
    run: Box<dyn Fn(activity::Context) -> BoxFuture<'static, Attempted> + Send + Sync>,
    gives: PhantomData<fn() -> Result<T, E>>,
}

impl<T, E> Step<T, E>
where
    T: DeserializeOwned + Send + 'static,
    E: DeserializeOwned + Send + 'static,
{
    /// An activity that is done by a function.
    pub fn new(
        context: &Context,
        name: &'static str,
        options: activity::Options,
        run: impl Fn(activity::Context) -> BoxFuture<'static, Attempted> + Send + Sync + 'static,
    ) -> Self {
        Self { context: context.clone(), name, options, run: Box::new(run), gives: PhantomData }
    }

    /// With other options than the activity's own.
    pub fn with(self, change: impl FnOnce(activity::Options) -> activity::Options) -> Self {
        Self { options: change(self.options), ..self }
    }

    /// What it gives, or all that is known of why not.
    pub async fn outcome(self) -> Result<T, Error<E>> {
        let context = self.context.clone();
        let asked = self.context.activity(self.name, self.options, self.run);
        read(&context, self.name, asked.await).await
    }
}

async fn read<T: DeserializeOwned, E: DeserializeOwned>(
    context: &Context,
    name: &str,
    outcome: Outcome,
) -> Result<T, Error<E>> {
    match outcome {
        Outcome::Success(value) => match codec::decode(&value) {
            Ok(value) => Ok(value),
            Err(error) => unreadable(context, name, &error).await,
        },
        Outcome::Failure(failure) => match codec::decode(&failure.details) {
            Ok(error) => Err(Error::Failed(error)),
            Err(_) => Err(Error::Defect(Defect { kind: failure.kind, message: failure.message })),
        },
        Outcome::Defect(defect) => Err(Error::Defect(defect)),
    }
}

impl<T, E> IntoFuture for Step<T, E>
where
    T: DeserializeOwned + Send + 'static,
    E: DeserializeOwned + Send + 'static,
{
    type Output = Result<T, E>;
    type IntoFuture = BoxFuture<'static, Result<T, E>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let context = self.context.clone();
            match self.outcome().await {
                Ok(value) => Ok(value),
                Err(Error::Failed(error)) => Err(error),
                Err(Error::Defect(defect)) => context.fail(Outcome::Defect(defect)).await,
            }
        })
    }
}

/// A child workflow, before it is started. Awaiting it gives what it gives; if that is nothing of its own (it was cancelled, or timed
/// out), the parent fails. [`outcome`](Self::outcome) tells that, too.
#[must_use = "a child is started when it is awaited"]
pub struct ChildStep<W: Execute> {
    context: Context,
    child: Result<Child, Defect>,
    gives: PhantomData<fn() -> W>,
}

impl<W: Execute> ChildStep<W> {
    fn new(context: &Context, input: &W::Input) -> Self {
        let child = W::definition().map_err(|error| malformed(&error)).and_then(|definition| {
            let input = codec::encode(input).map_err(|error| malformed(&error))?;
            let address =
                EntityAddress { entity_type: definition.entity_type, id: context.about().address.id.clone() };
            let (group, policy) = (Some(definition.group), Policy::default());
            Ok(Child { address, path: String::new(), named: false, group, input: input.into(), policy })
        });
        Self { context: context.clone(), child, gives: PhantomData }
    }

    /// What becomes of it when its parent ends, or does not wait for it any more. It is cancelled if nothing is said.
    pub fn policy(mut self, policy: Policy) -> Self {
        if let Ok(child) = &mut self.child {
            child.policy = policy;
        }
        self
    }

    /// With an id of its own, instead of one that its parent's run and step give it.
    pub fn id(mut self, id: &str) -> Self {
        self.child = self.child.and_then(|child| {
            let address = EntityAddress::new(child.address.entity_type.as_str(), id)
                .map_err(|error| malformed(&error))?;
            Ok(Child { address, named: true, ..child })
        });
        self
    }

    /// What it gives, or all that is known of why not.
    pub async fn outcome(self) -> Result<W::Output, Error<W::Error>> {
        match self.child {
            Ok(child) => {
                let name = child.address.to_string();
                let outcome = self.context.child(child).await;
                read(&self.context, &name, outcome).await
            }
            Err(defect) => Err(Error::Defect(defect)),
        }
    }
}

fn malformed(error: &dyn std::error::Error) -> Defect {
    Defect { kind: "Malformed".to_owned(), message: error.to_string() }
}

impl<W: Execute> IntoFuture for ChildStep<W> {
    type Output = Result<W::Output, W::Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let context = self.context.clone();
            match self.outcome().await {
                Ok(value) => Ok(value),
                Err(Error::Failed(error)) => Err(error),
                Err(Error::Defect(defect)) => context.fail(Outcome::Defect(defect)).await,
            }
        })
    }
}

/// What an activity knows while it runs. `self` in an activity has all of it, and `self.tx`.
pub trait Acting {
    /// The activity.
    fn activity(&self) -> &activity::Context;

    /// Says that it is alive, and how far it has come. The next attempt is told.
    fn heartbeat<T: Serialize + ?Sized>(&self, progress: &T) {
        if let Err(error) = self.activity().heartbeat(progress) {
            tracing::warn!(error = &error as &dyn std::error::Error, "the progress cannot be written");
        }
    }

    /// How far an earlier attempt had come, by its own account.
    fn progress<T: DeserializeOwned>(&self) -> Option<T> {
        self.activity().progress().ok().flatten()
    }

    /// How many attempts have failed before this one.
    fn attempt(&self) -> u32 {
        self.activity().attempt
    }

    /// A key that is the same for each attempt and for no other step.
    fn key(&self) -> String {
        self.activity().key()
    }

    /// Comes back when nobody waits for the activity any more. It is dropped soon after.
    fn abandoned(&self) -> impl Future<Output = ()> + Send {
        let activity = self.activity().clone();
        async move { activity.cancelled().await }
    }
}

/// What an attempt gives, for what an activity's own function returned. An error is final if a function says so.
///
/// # Errors
/// The function's, in the form in which it is remembered.
pub fn attempted<T: Serialize, E: Refusal>(result: Result<T, E>, last: bool) -> Attempted {
    match result {
        Ok(value) => codec::encode(&value).map(Into::into).map_err(|error| {
            let error = crate::entity::Error::codec("what it gives", &error);
            Failed::last(error.reason().to_owned(), error.to_string())
        }),
        Err(error) => Err(match error.into_handler_error() {
            HandlerError::Failed(failure) if last || E::CONSIDERED => Failed::Final(failure),
            HandlerError::Failed(failure) => Failed::Again(failure),
            HandlerError::Retry(error)
            | HandlerError::RetryAfter(error, _)
            | HandlerError::Delayed(error, _) => Failed::retry(error),
        }),
    }
}
