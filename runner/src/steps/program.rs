//! A definition that was checked: a tree in which nothing is missing and nothing contradicts itself.

use std::sync::Arc;
use std::time::Duration;

use cleat_cel::{Program as Condition, Template, Type};
use cleat_crds::SecretKey;
use cleat_crds::http::{Auth, Tls};

/// A workflow that was written down as steps and checked. Expressions are compiled.
#[derive(Debug)]
pub struct Program {
    /// The type of its input.
    pub(super) input: Type,
    pub(super) block: Block,
    pub(super) output: Option<Template>,
}

/// Steps, one after the other. A block gives what its last step gives.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: Arc<str>,
    pub(super) when: Option<Condition>,
    pub(super) action: Action,
    pub(super) timeout: Option<Duration>,
    /// How it is taken again as a whole when it fails. What only asks somebody is tried again by its action.
    pub(super) again: Option<Retry>,
    /// What undoes it.
    pub(super) compensate: Option<Act>,
}

#[derive(Debug)]
pub(super) enum Action {
    Act {
        act: Arc<Act>,
        retry: Retry,
    },
    Sleep(Template),
    Until(Template),
    Signal {
        name: String,
        timeout: Option<Duration>,
    },
    Parallel(Vec<(Arc<str>, Block)>),
    ForEach {
        items: Template,
        name: Arc<str>,
        concurrency: usize,
        block: Block,
    },
    /// The first case whose condition is true; the last may have none.
    Switch(Vec<(Option<Condition>, Block)>),
    /// All read the variables as they were before.
    Set(Vec<(Arc<str>, Template)>),
    Workflow {
        workflow: String,
        key: Option<Template>,
        input: Option<Template>,
        retry: Option<Retry>,
    },
    Fail {
        reason: String,
        message: Option<Template>,
    },
}

/// What is done outside, and can be done again with the same key.
#[derive(Debug)]
pub(super) enum Act {
    Call { entity: String, id: Template, method: String, input: Option<Template> },
    Http(Box<Request>),
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) url: Template,
    pub(super) headers: Vec<(String, Header)>,
    pub(super) body: Option<Template>,
    pub(super) auth: Option<Auth>,
    pub(super) tls: Option<Tls>,
}

#[derive(Debug)]
pub(super) enum Header {
    Text(Template),
    Secret(SecretKey),
}

/// How what did not get through is tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    /// How many attempts there are; without end if it is not said.
    pub(super) attempts: Option<u32>,
    /// The pause after the first failure; each further one is twice as long.
    pub(super) backoff: Duration,
    /// The longest pause.
    pub(super) max: Duration,
}

impl Action {
    /// What users see as its kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Act { act, .. } => act.kind(),
            Self::Sleep(_) => "sleep",
            Self::Until(_) => "until",
            Self::Signal { .. } => "signal",
            Self::Parallel(_) => "parallel",
            Self::ForEach { .. } => "forEach",
            Self::Switch(_) => "switch",
            Self::Set(_) => "set",
            Self::Workflow { .. } => "workflow",
            Self::Fail { .. } => "fail",
        }
    }
}

impl Act {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Call { .. } => "call",
            Self::Http(_) => "http",
        }
    }
}

impl Retry {
    /// The pause after so many failures.
    pub(super) fn pause(&self, failed: u32) -> Duration {
        let factor = 1u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        self.backoff.saturating_mul(factor).min(self.max)
    }
}

impl Program {
    /// The steps of the outermost block, each with its kind.
    pub fn outline(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.block.steps.iter().map(|step| (&*step.name, step.action.kind()))
    }
}
