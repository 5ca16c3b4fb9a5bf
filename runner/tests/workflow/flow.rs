//! A workflow that is what a test says, written by hand.

use std::future::Future;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cleat_runner::entity::InvalidDefinition;
use cleat_runner::message::{Outcome, codec};
use cleat_runner::workflow::activity::{self, Attempted, Failed};
use cleat_runner::workflow::{Client, Context, Definition, Execute, Host, Key, Service};
use futures::FutureExt;

/// A workflow of texts.
pub struct Flow;

impl Execute for Flow {
    type Input = String;
    type Output = String;
    type Error = String;

    fn definition() -> Result<Definition, InvalidDefinition> {
        Ok(Definition::new("flow")?)
    }

    fn key(input: &String) -> Option<Key> {
        Some(Key::Raw(input.clone()))
    }
}

/// Registers a function as the workflow.
pub fn flow<F>(host: &Host, body: impl Fn(Context, String) -> F + Send + Sync + 'static) -> Client<Flow>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    Service::<Flow>::new(move |context, input| body(context, input).boxed()).unwrap().register(host).unwrap()
}

/// What was done outside, in its order.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    pub fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|noted| *noted == what).count()
    }
}

/// An activity that notes its name and gives it back.
pub async fn act(context: &Context, ledger: &Ledger, name: &str) -> String {
    let noted = ledger.clone();
    let what = name.to_owned();
    let done = context.activity(name, activity::Options::default(), move |_| {
        let (noted, what) = (noted.clone(), what.clone());
        async move {
            noted.note(what.clone());
            give(&what)
        }
        .boxed()
    });
    text(done.await)
}

pub fn give(value: &str) -> Attempted {
    codec::encode(value).map(Bytes::from).map_err(|error| Failed::last("Codec", error.to_string()))
}

pub fn text(outcome: Outcome) -> String {
    match outcome {
        Outcome::Success(value) => codec::decode(&value).unwrap(),
        Outcome::Failure(failure) => format!("{}: {}", failure.kind, failure.message),
        Outcome::Defect(defect) => format!("{}: {}", defect.kind, defect.message),
    }
}
