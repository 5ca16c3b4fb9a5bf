//! What is remembered of an execution: the entries of its journal, and how they become bytes.
//!
//! Entries are small arrays in MessagePack. A field that is added later comes last and has a default, so that journals which were
//! written before it can still be read.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::child::Policy;
use super::keys::KeptKey;
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{EntityAddress, Outcome, Snowflake};
use crate::store;

/// A step of a workflow: the how many-th thing that its function asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u32);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One thing that happened to an execution, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was written down, in milliseconds of Unix time. It is what the function calls now until the next entry.
    pub at: i64,
    /// What happened.
    pub event: Event,
}

/// What can happen to an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The run goes on from an earlier one, with this input. Always the first entry, if it is there.
    #[serde(rename = "B")]
    Begun {
        /// What the function is given.
        input: Bytes,
        /// The run before.
        from: Snowflake,
    },
    /// What the execution keeps of its definition. Among the first entries, if it is there.
    #[serde(rename = "N")]
    Defined {
        /// In the form of whoever defined it.
        definition: Bytes,
    },
    /// An activity has ended.
    #[serde(rename = "A")]
    Activity {
        /// Which step.
        step: Step,
        /// The activity's name.
        name: String,
        /// How many attempts were made.
        attempts: u32,
        /// What came of it.
        outcome: Outcome,
    },
    /// An attempt of an activity failed, and there will be another one.
    #[serde(rename = "F")]
    Attempt {
        /// Which step.
        step: Step,
        /// The activity's name.
        name: String,
        /// How many attempts have been made.
        attempts: u32,
        /// What went wrong.
        error: String,
        /// When the next one is due, in milliseconds of Unix time.
        again: i64,
        /// How far it had come, by its own account.
        progress: Option<Bytes>,
    },
    /// A running activity told how far it has come.
    #[serde(rename = "H")]
    Progress {
        /// Which step.
        step: Step,
        /// The activity's name.
        name: String,
        /// How far.
        progress: Bytes,
    },
    /// A sleep is over.
    #[serde(rename = "T")]
    Slept {
        /// Which step.
        step: Step,
        /// What it is called, if it is.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        name: String,
    },
    /// A value that the function took from outside.
    #[serde(rename = "R")]
    Recorded {
        /// Which step.
        step: Step,
        /// What it is called.
        name: String,
        /// The value.
        value: Bytes,
    },
    /// The function took the new one of two paths.
    #[serde(rename = "V")]
    Patched {
        /// Which step.
        step: Step,
        /// The change.
        id: String,
    },
    /// Another workflow was started.
    #[serde(rename = "C")]
    Child {
        /// Which step.
        step: Step,
        /// Who it is.
        address: EntityAddress,
        /// What becomes of it when its parent ends.
        #[serde(default, skip_serializing_if = "Policy::is_cancel")]
        policy: Policy,
    },
    /// A child has ended.
    #[serde(rename = "D")]
    ChildEnded {
        /// The step that started it.
        step: Step,
        /// What came of it.
        outcome: Outcome,
    },
    /// The function does not wait for a step any more, and what it did was told to stop.
    #[serde(rename = "X")]
    Dropped {
        /// Which step.
        step: Step,
    },
    /// Somebody sent a signal.
    #[serde(rename = "S")]
    Signal {
        /// Which one.
        name: String,
        /// What it says.
        payload: Bytes,
    },
    /// Somebody kept a promise.
    #[serde(rename = "P")]
    Promise {
        /// Which one.
        name: String,
        /// What was promised, or why it is not to be had.
        outcome: Outcome,
    },
    /// The execution is to end before its time.
    #[serde(rename = "K")]
    Cancel(Why),
    /// A retry or reset continues here, in a new run, with the entries before this one.
    #[serde(rename = "O")]
    Forked {
        /// The run before.
        from: Snowflake,
        /// How many entries of its journal were kept as they were.
        entries: u32,
        /// Keys of activities whose outcome was unknown. They replace those of an earlier fork.
        keys: Vec<KeptKey>,
        /// Steps that have no answer, and all their time and attempts again.
        restarted: Vec<Step>,
    },
    /// The execution has ended.
    #[serde(rename = "E")]
    Ended {
        /// What came of it.
        outcome: Outcome,
    },
}

/// Why an execution is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// Somebody asked for it.
    #[serde(rename = "r")]
    Requested,
    /// It took longer than it was given.
    #[serde(rename = "d")]
    Deadline,
}

impl Entry {
    /// Something that happens now.
    pub fn now(event: Event) -> Self {
        Self { at: to_millis(SystemTime::now()), event }
    }

    /// When it was written down.
    pub fn time(&self) -> SystemTime {
        from_millis(self.at)
    }

    /// The bytes to store.
    ///
    /// # Errors
    /// The event has no form in MessagePack, which does not happen.
    pub fn encode(&self) -> Result<Bytes, store::Error> {
        let bytes = rmp_serde::to_vec(self).map_err(|source| store::Error::Corrupt {
            what: "journal entry",
            source: std::sync::Arc::new(source),
        })?;
        Ok(bytes.into())
    }

    /// The entry in stored bytes.
    ///
    /// # Errors
    /// They are none, or one of a later release.
    pub fn decode(bytes: &[u8]) -> Result<Self, store::Error> {
        rmp_serde::from_slice(bytes).map_err(|source| store::Error::Corrupt {
            what: "journal entry",
            source: std::sync::Arc::new(source),
        })
    }
}

impl Event {
    /// The step that it is about, with what was asked then, if it says so.
    pub fn step(&self) -> Option<(Step, Option<Asked>)> {
        let named = |kind, name: &str| Some(Asked { kind, name: name.to_owned() });
        Some(match self {
            Self::Activity { step, name, .. }
            | Self::Attempt { step, name, .. }
            | Self::Progress { step, name, .. } => (*step, named(Kind::Activity, name)),
            Self::Slept { step, name } => (*step, named(Kind::Sleep, name)),
            Self::Recorded { step, name, .. } => (*step, named(Kind::Record, name)),
            Self::Patched { step, id } => (*step, named(Kind::Patch, id)),
            Self::Child { step, address, .. } => (*step, named(Kind::Child, address.entity_type.as_str())),
            Self::ChildEnded { step, .. } | Self::Dropped { step } => (*step, None),
            Self::Begun { .. }
            | Self::Defined { .. }
            | Self::Signal { .. }
            | Self::Promise { .. }
            | Self::Cancel(_)
            | Self::Forked { .. }
            | Self::Ended { .. } => return None,
        })
    }
}

/// How a journal begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Opening {
    /// The input of a run that goes on from an earlier one, and when it began, in milliseconds of Unix time.
    pub(super) begun: Option<(Bytes, i64)>,
    /// What the execution keeps of its definition.
    pub(super) definition: Option<Bytes>,
    /// How many entries say so. They are there before the function takes its first step.
    pub(super) entries: usize,
}

impl Opening {
    pub(super) fn of(journal: &[Entry]) -> Self {
        let mut opening = Self::default();
        for entry in journal {
            match &entry.event {
                Event::Begun { input, .. } => opening.begun = Some((input.clone(), entry.at)),
                Event::Defined { definition } => opening.definition = Some(definition.clone()),
                _ => break,
            }
            opening.entries += 1;
        }
        opening
    }
}

/// The run that a journal continues, if it does.
pub(super) fn previous_run(journal: &[Entry]) -> Option<Snowflake> {
    journal.iter().rev().find_map(|entry| match entry.event {
        Event::Forked { from, .. } | Event::Begun { from, .. } => Some(from),
        _ => None,
    })
}

/// What a function asks for with a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What kind of thing.
    pub kind: Kind,
    /// Which one.
    pub name: String,
}

/// What kinds of steps there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something is done outside.
    Activity,
    /// Time passes.
    Sleep,
    /// A value is taken from outside.
    Record,
    /// One of two paths is taken.
    Patch,
    /// Another workflow is started.
    Child,
}

impl Asked {
    /// A step of this kind and name.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Activity => "activity",
            Kind::Sleep if self.name.is_empty() => return f.write_str("a sleep"),
            Kind::Sleep => "the sleep",
            Kind::Record => "the recorded value",
            Kind::Patch => "the patch",
            Kind::Child => "the child workflow",
        };
        write!(f, "{kind} `{}`", self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Outcome::Success(bytes.into())),
            ("[A-Z]{1,5}", ".{0,9}").prop_map(|(kind, message)| Outcome::failure(kind, message)),
            ("[A-Z]{1,5}", ".{0,9}").prop_map(|(kind, message)| Outcome::defect(kind, message)),
        ]
    }

    fn event() -> impl Strategy<Value = Event> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
        let step = || any::<u32>().prop_map(Step);
        prop_oneof![
            (bytes(), any::<i64>())
                .prop_map(|(input, from)| Event::Begun { input, from: Snowflake::new(from) }),
            bytes().prop_map(|definition| Event::Defined { definition }),
            (step(), "[a-z]{1,9}", any::<u32>(), outcome()).prop_map(|(step, name, attempts, outcome)| {
                Event::Activity { step, name, attempts, outcome }
            }),
            (step(), "[a-z]{1,9}", any::<u32>(), ".{0,9}", any::<i64>(), proptest::option::of(bytes()))
                .prop_map(|(step, name, attempts, error, again, progress)| Event::Attempt {
                    step,
                    name,
                    attempts,
                    error,
                    again,
                    progress
                }),
            (step(), "[a-z]{1,9}", bytes()).prop_map(|(step, name, progress)| Event::Progress {
                step,
                name,
                progress
            }),
            (step(), "[a-z]{0,9}").prop_map(|(step, name)| Event::Slept { step, name }),
            (step(), "[a-z]{1,9}", bytes()).prop_map(|(step, name, value)| Event::Recorded {
                step,
                name,
                value
            }),
            (step(), ".{0,9}").prop_map(|(step, id)| Event::Patched { step, id }),
            (step(), "[a-z]{1,9}", any::<bool>()).prop_map(|(step, id, stays)| Event::Child {
                step,
                address: EntityAddress::new("order", &id).unwrap(),
                policy: if stays { Policy::Abandon } else { Policy::Cancel },
            }),
            (step(), outcome()).prop_map(|(step, outcome)| Event::ChildEnded { step, outcome }),
            step().prop_map(|step| Event::Dropped { step }),
            (".{0,9}", bytes()).prop_map(|(name, payload)| Event::Signal { name, payload }),
            (".{0,9}", outcome()).prop_map(|(name, outcome)| Event::Promise { name, outcome }),
            Just(Event::Cancel(Why::Requested)),
            Just(Event::Cancel(Why::Deadline)),
            (any::<i64>(), any::<u32>(), proptest::option::of(step()), "[a-z]{1,9}", step()).prop_map(
                |(from, entries, of, name, open)| Event::Forked {
                    from: Snowflake::new(from),
                    entries,
                    keys: vec![KeptKey { step: of, key: format!("1:{name}"), name }],
                    restarted: vec![open],
                }
            ),
            outcome().prop_map(|outcome| Event::Ended { outcome }),
        ]
    }

    proptest! {
        #[test]
        fn an_entry_is_read_as_it_was_written(at in any::<i64>(), event in event()) {
            let entry = Entry { at, event };
            prop_assert_eq!(Entry::decode(&entry.encode().unwrap()).unwrap(), entry);
        }

        #[test]
        fn bytes_that_are_no_entry_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Entry::decode(&bytes);
        }
    }

    #[test]
    fn an_entry_costs_little_more_than_what_it_says() {
        let outcome = Outcome::Success(Bytes::from(vec![200; 1000]));
        let event = Event::Activity { step: Step(3), name: "charge".into(), attempts: 1, outcome };
        let entry = Entry { at: 1_800_000_000_000, event };
        assert!(entry.encode().unwrap().len() < 1045, "{}", entry.encode().unwrap().len());
    }

    #[test]
    fn entries_are_read_as_they_were_first_written() {
        let slept = Entry { at: 5, event: Event::Slept { step: Step(3), name: String::new() } };
        assert_eq!(slept.encode().unwrap().as_ref(), [0x92, 0x05, 0x81, 0xa1, b'T', 0x91, 0x03]);
    }
}
