//! The public id of an execution.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::Problem;
use crate::message::EntityAddress;
use crate::workflow::{self, name_of};

/// An execution as users name it: its workflow and its key, such as `order:o-1`.
///
/// The key begins after the first colon and is as it is. In the name of a workflow, `:` is written `%3A` and `%` is `%25`, so every
/// name and every key has an id, and no two have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExecutionId {
    pub(super) workflow: String,
    pub(super) key: String,
}

impl ExecutionId {
    pub(super) fn new(workflow: &str, key: &str) -> Self {
        Self { workflow: workflow.to_owned(), key: key.to_owned() }
    }

    /// Of the address that the store has.
    pub(super) fn of(address: &EntityAddress) -> Self {
        Self::new(name_of(&address.entity_type), address.id.as_str())
    }

    /// The address that the store has.
    pub(super) fn address(&self) -> Result<EntityAddress, Problem> {
        Ok(workflow::address(&self.workflow, &self.key)?)
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.workflow.replace('%', "%25").replace(':', "%3A");
        write!(f, "{name}:{}", self.key)
    }
}

impl FromStr for ExecutionId {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let parse = || {
            let (name, key) = text.split_once(':')?;
            let name = percent_decode_str(name).decode_utf8().ok()?;
            (!name.is_empty() && !key.is_empty()).then(|| Self::new(&name, key))
        };
        parse().ok_or_else(|| {
            let why = format!("{text:?} is not WORKFLOW:KEY, such as order:o-1");
            Problem::parameter("the id of the execution", why)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_and_every_key_survive_being_written_and_read(workflow in ".{1,20}", key in ".{1,20}") {
            let id = ExecutionId::new(&workflow, &key);
            prop_assert_eq!(id.to_string().parse::<ExecutionId>().unwrap(), id);
        }

        #[test]
        fn no_two_have_the_same_id(a in "[a:%3A]{1,4}", b in "[a:%3A]{1,4}", c in "[a:%3A]{1,4}", d in "[a:%3A]{1,4}") {
            let (one, other) = (ExecutionId::new(&a, &b), ExecutionId::new(&c, &d));
            prop_assert_eq!(one == other, one.to_string() == other.to_string());
        }
    }

    #[test]
    fn an_id_reads_as_users_expect() {
        assert_eq!(ExecutionId::new("order", "o-1").to_string(), "order:o-1");
        assert_eq!(ExecutionId::new("order", "a:b/c").to_string(), "order:a:b/c");
        for bad in ["", "order", ":o-1", "order:"] {
            assert_eq!(bad.parse::<ExecutionId>().unwrap_err().reason(), "InvalidParameter", "{bad:?}");
        }
    }
}
