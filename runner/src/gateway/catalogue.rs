//! What can be asked, and in which form.

use serde_json::Value;

use crate::message::EntityType;

/// The JSON schemas of what is declared. Types that are compiled into a runner have none.
pub trait Schemas: Send + Sync + 'static {
    /// Of the input of a method.
    fn input(&self, entity_type: &EntityType, method: &str) -> Option<Value>;

    /// Of the output of a method.
    fn output(&self, entity_type: &EntityType, method: &str) -> Option<Value>;

    /// Of the input of a workflow.
    fn workflow(&self, name: &str) -> Option<Value>;
}

/// No schemas at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untyped;

impl Schemas for Untyped {
    fn input(&self, _: &EntityType, _: &str) -> Option<Value> {
        None
    }

    fn output(&self, _: &EntityType, _: &str) -> Option<Value> {
        None
    }

    fn workflow(&self, _: &str) -> Option<Value> {
        None
    }
}
