//! Changing a state.

use serde_json::{Map as JsonMap, Value as Json};

use super::{Resolved, Step, show};

/// Why a change cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two changes touch the same place.
    #[error("'{first}' and '{second}' overlap")]
    Overlap {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// The way leads through something that is no object.
    #[error("'{path}' is {found}, not an object")]
    NotAnObject {
        /// What is no object.
        path: String,
        /// What it is instead.
        found: &'static str,
    },
    /// The way leads through something that is no list.
    #[error("'{path}' is {found}, not a list")]
    NotAList {
        /// What is no list.
        path: String,
        /// What it is instead.
        found: &'static str,
    },
    /// A list is shorter than that.
    #[error("'{path}' has {length} items, there is none at {index}")]
    OutOfBounds {
        /// The list.
        path: String,
        /// How long it is.
        length: usize,
        /// Which item was wanted.
        index: usize,
    },
}

impl Error {
    /// One word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Overlap { .. } => "OverlappingPaths",
            Self::NotAnObject { .. } => "NotAnObject",
            Self::NotAList { .. } => "NotAList",
            Self::OutOfBounds { .. } => "IndexOutOfBounds",
        }
    }
}

/// Changes that are made together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Changes(Vec<(Resolved, Option<Json>)>);

impl Changes {
    /// No changes.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Puts `value` at `path`.
    ///
    /// # Errors
    /// [`Error::Overlap`] with an earlier change.
    pub fn set(&mut self, path: Resolved, value: Json) -> Result<(), Error> {
        self.add(path, Some(value))
    }

    /// Removes what is at `path`, if anything is.
    ///
    /// # Errors
    /// [`Error::Overlap`] with an earlier change.
    pub fn unset(&mut self, path: Resolved) -> Result<(), Error> {
        self.add(path, None)
    }

    fn add(&mut self, path: Resolved, change: Option<Json>) -> Result<(), Error> {
        if let Some((earlier, _)) = self.0.iter().find(|(earlier, _)| earlier.overlaps(&path)) {
            return Err(Error::Overlap { first: earlier.to_string(), second: path.to_string() });
        }
        self.0.push((path, change));
        Ok(())
    }

    /// The state with all changes made. All indices are those of the old state. Objects on the way to a value that do
    /// not exist are created; an item right behind the end of a list is appended.
    ///
    /// # Errors
    /// The first change that cannot be made.
    pub fn apply(self, state: Json) -> Result<Json, Error> {
        let mut state = state;
        let (mut sets, mut unsets) = (Vec::new(), Vec::new());
        for (path, change) in self.0 {
            match change {
                Some(value) => sets.push((path, value)),
                None => unsets.push(path),
            }
        }
        for (path, value) in sets {
            set(&mut state, &path.0, value)?;
        }
        // From the back, so that no removal shifts another one's index.
        unsets.sort_by(|a, b| order(&b.0, &a.0));
        for path in unsets {
            unset(&mut state, &path.0)?;
        }
        Ok(state)
    }
}

fn order(a: &[Step], b: &[Step]) -> std::cmp::Ordering {
    let steps = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Step::Key(a), Step::Key(b)) => a.cmp(b),
        (Step::Index(a), Step::Index(b)) => a.cmp(b),
        (Step::Key(_), Step::Index(_)) => std::cmp::Ordering::Less,
        (Step::Index(_), Step::Key(_)) => std::cmp::Ordering::Greater,
    });
    steps.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn text(steps: &[Step]) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = show(steps, &mut text);
    if text.is_empty() { "state".to_owned() } else { text }
}

const fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a bool",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// What the first `done` of `steps` lead to, created if it can be.
fn enter<'a>(state: &'a mut Json, steps: &[Step], done: usize) -> Result<&'a mut Json, Error> {
    let mut current = state;
    for (index, step) in steps.iter().take(done).enumerate() {
        let here = steps.get(..index).unwrap_or(&[]);
        current = match step {
            Step::Key(key) => {
                object(current, here)?.entry(key.clone()).or_insert_with(|| empty(steps.get(index + 1)))
            }
            Step::Index(item) => {
                let list = list(current, here)?;
                let length = list.len();
                list.get_mut(*item).ok_or_else(|| Error::OutOfBounds {
                    path: text(here),
                    length,
                    index: *item,
                })?
            }
        };
    }
    Ok(current)
}

/// The empty collection that the next step leads into.
fn empty(next: Option<&Step>) -> Json {
    match next {
        Some(Step::Index(_)) => Json::Array(Vec::new()),
        _ => Json::Object(JsonMap::new()),
    }
}

fn object<'a>(json: &'a mut Json, here: &[Step]) -> Result<&'a mut JsonMap<String, Json>, Error> {
    match json {
        Json::Object(object) => Ok(object),
        other => Err(Error::NotAnObject { path: text(here), found: kind(other) }),
    }
}

fn list<'a>(json: &'a mut Json, here: &[Step]) -> Result<&'a mut Vec<Json>, Error> {
    match json {
        Json::Array(list) => Ok(list),
        other => Err(Error::NotAList { path: text(here), found: kind(other) }),
    }
}

fn set(state: &mut Json, steps: &[Step], value: Json) -> Result<(), Error> {
    let Some((last, way)) = steps.split_last() else { return Ok(()) };
    let parent = enter(state, steps, way.len())?;
    match last {
        Step::Key(key) => {
            object(parent, way)?.insert(key.clone(), value);
        }
        Step::Index(index) => {
            let list = list(parent, way)?;
            let length = list.len();
            match list.get_mut(*index) {
                Some(item) => *item = value,
                None if *index == length => list.push(value),
                None => return Err(Error::OutOfBounds { path: text(way), length, index: *index }),
            }
        }
    }
    Ok(())
}

fn unset(state: &mut Json, steps: &[Step]) -> Result<(), Error> {
    let Some((last, way)) = steps.split_last() else { return Ok(()) };
    let mut current = state;
    for (index, step) in way.iter().enumerate() {
        let here = steps.get(..index).unwrap_or(&[]);
        let next = match step {
            Step::Key(key) => object(current, here)?.get_mut(key),
            Step::Index(item) => list(current, here)?.get_mut(*item),
        };
        // What is not there has nothing in it to remove.
        let Some(next) = next else { return Ok(()) };
        current = next;
    }
    match last {
        Step::Key(key) => {
            object(current, way)?.remove(key);
        }
        Step::Index(index) => {
            let list = list(current, way)?;
            if *index < list.len() {
                list.remove(*index);
            }
        }
    }
    Ok(())
}
