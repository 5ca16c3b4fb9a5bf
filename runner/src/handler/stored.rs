//! The state of a declared entity.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

/// A state of any shape; none if nothing was ever stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Stored(Option<Json>);

impl Stored {
    /// The state, or what it is before anything was stored.
    pub(super) fn or<'a>(&'a self, initial: &'a Json) -> &'a Json {
        self.0.as_ref().unwrap_or(initial)
    }

    pub(super) fn set(&mut self, state: Json) {
        self.0 = Some(state);
    }
}

/// What is stored is a state, also if it is null.
impl<'de> Deserialize<'de> for Stored {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Json::deserialize(from).map(|state| Self(Some(state)))
    }
}
