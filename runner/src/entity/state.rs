//! An entity's state in memory.

use std::any::Any;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::codec;

/// The state of one instance: as bytes, as they are or will be stored, and as the handlers' own type once one of them has asked.
#[derive(Default)]
pub(super) struct State {
    /// Counts the changes, committed or not. 0 if there is no state yet.
    pub(super) version: i64,
    bytes: Bytes,
    value: Option<Box<dyn Value>>,
}

/// The type of an entity's state: how the handlers' own value is made of the stored bytes.
#[derive(Clone, Copy)]
pub struct StateType(fn(&mut State) -> Result<(), codec::Error>);

impl StateType {
    /// The state is a `T`, its default if nothing has been stored yet.
    pub fn of<T>() -> Self
    where
        T: Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Self(State::materialize::<T>)
    }

    pub(super) fn materialize(self, state: &mut State) -> Result<(), codec::Error> {
        (self.0)(state)
    }
}

impl std::fmt::Debug for StateType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateType")
    }
}

trait Value: Any + Send + Sync {
    fn encode(&self) -> Result<Vec<u8>, codec::Error>;
    fn any(&self) -> &dyn Any;
    fn any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Serialize + Send + Sync> Value for T {
    fn encode(&self) -> Result<Vec<u8>, codec::Error> {
        codec::encode(self)
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl State {
    /// A state as it was stored.
    pub(super) fn stored(version: i64, bytes: Bytes) -> Self {
        Self { version, bytes, value: None }
    }

    /// Makes the handlers' own value of the bytes, unless it is there. A state that was never stored is the default.
    fn materialize<T>(&mut self) -> Result<(), codec::Error>
    where
        T: Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        if self.get::<T>().is_none() {
            let value = if self.version == 0 { T::default() } else { codec::decode::<T>(&self.bytes)? };
            self.value = Some(Box::new(value));
        }
        Ok(())
    }

    pub(super) fn get<T: 'static>(&self) -> Option<&T> {
        self.value.as_deref()?.any().downcast_ref()
    }

    pub(super) fn get_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.value.as_deref_mut()?.any_mut().downcast_mut()
    }

    /// Takes what a handler did to the value as the next version. The bytes to store; none if nothing changed.
    pub(super) fn advance(&mut self) -> Result<Option<Bytes>, codec::Error> {
        let Some(value) = &self.value else { return Ok(None) };
        let bytes = value.encode()?;
        if self.version > 0 && bytes == self.bytes {
            return Ok(None);
        }
        self.bytes = bytes.into();
        self.version += 1;
        Ok(Some(self.bytes.clone()))
    }

    /// Whether the handlers' own value is there.
    pub(super) fn is_materialized(&self) -> bool {
        self.value.is_some()
    }

    /// Forgets what a failed handler did to the value.
    pub(super) fn revert(&mut self) {
        self.value = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_handler_did_is_forgotten() {
        let mut state = State::default();
        state.materialize::<Vec<i32>>().unwrap();
        state.get_mut::<Vec<i32>>().unwrap().push(1);
        assert!(state.advance().unwrap().is_some());
        state.get_mut::<Vec<i32>>().unwrap().push(2);
        state.revert();
        state.materialize::<Vec<i32>>().unwrap();
        assert_eq!(state.get::<Vec<i32>>(), Some(&vec![1]));
        assert_eq!(state.version, 1);
    }

    #[test]
    fn a_handler_that_changed_nothing_makes_no_version() {
        let mut state = State::stored(7, codec::encode(&vec![1]).unwrap().into());
        state.materialize::<Vec<i32>>().unwrap();
        assert_eq!(state.advance().unwrap(), None);
        assert_eq!(state.version, 7);
    }
}
