//! The lines between the bench and a subject: a [`Command`] each way in, one [`Answer`] each way out.

use serde::{Deserialize, Serialize};

/// What a subject is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    /// Become a node. Answered with [`Answer::Done`].
    Start(Start),
    /// How many shards are served here? Answered with [`Answer::Shards`].
    Shards,
    /// Let clients ask for a while. Answered with [`Answer::Outcome`].
    Load(Load),
    /// Ask each of many entities once. Answered with [`Answer::Done`].
    Touch(Touch),
    /// Ask some entities over and over from now on. Answered with [`Answer::Done`] when each has answered once.
    Watch(Watch),
    /// Something has just happened: what is asked from now on counts for [`Command::Answered`]. Answered with [`Answer::Done`].
    Mark,
    /// When did each watched entity answer something that was asked after the mark? Answered with [`Answer::Answered`] when all
    /// have, or when the time is over.
    Answered {
        /// How long to wait for the last one.
        seconds: f64,
    },
    /// Stop watching. Answered with [`Answer::Watched`].
    Unwatch,
    /// Let workflows sleep once, all at the same time. Answered with [`Answer::Slept`] when they have ended.
    Sleep {
        /// How many.
        workflows: usize,
        /// How long.
        seconds: f64,
    },
    /// Let workflows wait for something that does not come. Answered with [`Answer::Done`] when all have begun to.
    Wait {
        /// How many.
        workflows: usize,
        /// For what.
        wait: Wait,
    },
    /// Stop being a node. Answered with [`Answer::Done`]; then the process ends.
    Stop,
}

/// What a subject says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// It is done.
    Done,
    /// It cannot be done.
    Failed(String),
    /// How many shards there are here.
    Shards(Shards),
    /// What a load has shown.
    Outcome(Outcome),
    /// How soon the watched entities answered.
    Answered(Answered),
    /// What watching has shown.
    Watched(Watched),
    /// How punctual sleepers were.
    Slept(Slept),
}

/// How a node is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// Its name, which no other node has.
    pub name: String,
    /// The database.
    pub database: String,
    /// Where leases are kept: ours are served by the bench, a peer brings its own kind. None for a node that is and stays alone, if
    /// the system has such a mode.
    pub leases: Option<String>,
}

/// What entities are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Method {
    /// A volatile call: the number comes back.
    Echo,
    /// A persisted call of an entity without state, whose effects are elsewhere: the number comes back.
    Outside,
    /// A persisted call that adds one to the entity's durable total, which comes back.
    Add,
    /// No entity, but a workflow from its start to its end, whose key is the number: the number comes back.
    Workflow {
        /// How many activities it has, one after the other.
        activities: u32,
        /// Whether each inserts a row in a transaction that commits with the journal. Otherwise it just gives something back.
        transaction: bool,
    },
}

/// What a workflow may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wait {
    /// A signal that nobody sends.
    Signal,
    /// The end of a day.
    Day,
}

/// Which entities are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// Those of this node.
    Local,
    /// Those of other nodes.
    Remote,
    /// All.
    Anywhere,
}

/// Clients that ask, each one thing after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    /// What they ask.
    pub method: Method,
    /// Whom.
    pub place: Place,
    /// How many clients.
    pub clients: usize,
    /// How many entities.
    pub entities: usize,
    /// How long, after a quarter of that to warm up.
    pub seconds: f64,
    /// The processes of the measured system, whose CPU time counts.
    pub runners: Vec<u32>,
    /// The database's first process, whose CPU time and whose children's counts.
    pub database: u32,
}

/// Each of many entities, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Touch {
    /// What they are asked.
    pub method: Method,
    /// The first one's number.
    pub first: usize,
    /// How many.
    pub entities: usize,
    /// How many are asked at once.
    pub clients: usize,
}

/// Entities that are asked [`Method::Add`] over and over, each by a client of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watch {
    /// Whom.
    pub place: Place,
    /// How many.
    pub entities: usize,
    /// How long each client rests between two calls.
    pub rest_seconds: f64,
    /// How long a call may take until the client gives it up and asks again.
    pub patience_seconds: f64,
}

/// The shards of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {
    /// Served here.
    pub served: usize,
    /// Of all nodes together.
    pub total: usize,
}

/// What a load has shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls that were answered in the measured time.
    pub per_second: f64,
    /// Half of the calls took no longer than this, in milliseconds.
    pub p50: f64,
    /// So for 99 of 100.
    pub p99: f64,
    /// So for 999 of 1,000.
    pub p999: f64,
    /// Calls that failed.
    pub errors: u64,
    /// Calls that had no answer long after the end.
    pub hung: u64,
    /// What the first failed call said.
    pub first_error: Option<String>,
    /// CPU time of the measured system for each call, the clients' included, in microseconds.
    pub runner_micros: f64,
    /// CPU time of the database for each call, in microseconds.
    pub database_micros: f64,
}

/// How soon after the mark entities answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answered {
    /// For each that did, in milliseconds, in order.
    pub millis: Vec<f64>,
    /// How many did not.
    pub missing: usize,
}

/// What watching has shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watched {
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that failed or were given up.
    pub errors: u64,
    /// What the first failed call said.
    pub first_error: Option<String>,
    /// Entities whose total is less than what was acknowledged.
    pub lost: u64,
    /// Entities whose total is more than what was asked.
    pub twice: u64,
    /// Each entity's longest time between two answers, in milliseconds, in order.
    pub pauses: Vec<f64>,
}

/// How punctual sleepers were, in milliseconds and in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Slept {
    /// By how much each function went on too late.
    pub overshoot: Vec<f64>,
    /// By how much each client had its answer later than the sleep should have ended.
    pub late: Vec<f64>,
}

impl Outcome {
    /// Calls without a reply.
    #[expect(clippy::cast_precision_loss, reason = "nobody needs the last digit of so many failures")]
    pub fn failures(&self) -> f64 {
        (self.errors + self.hung) as f64
    }
}
