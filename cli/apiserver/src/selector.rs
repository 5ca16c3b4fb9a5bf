//! Label and field selectors, as they come in the query of a list, watch or deletecollection.

use serde_json::Value;

/// Why a selector could not be read; a 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// A parsed label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {}

impl Labels {
    /// Parses `a=b,c!=d,e in (f,g),h,!i`.
    ///
    /// # Errors
    /// Text that is not a selector, and keys or values that are not labels.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let _ = text;
        Ok(Self::default())
    }

    /// Reads a LabelSelector object (`matchLabels`, `matchExpressions`). An empty one selects everything.
    ///
    /// # Errors
    /// An operator that is not known, or values that do not go with it.
    pub fn from_object(selector: &Value) -> Result<Self, Error> {
        let _ = selector;
        Ok(Self::default())
    }

    /// Whether this selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        true
    }

    /// Whether `object` (its `metadata.labels`) is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let _ = object;
        true
    }
}

/// A parsed field selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {}

impl Fields {
    /// Parses `metadata.name=a,status.phase!=b`.
    ///
    /// # Errors
    /// Text that is not a selector.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let _ = text;
        Ok(Self::default())
    }

    /// Checks that every field may be selected on: `metadata.name` and (for namespaced kinds) `metadata.namespace` always may,
    /// others if `selectable` has their path without a leading dot. See [`selectable`] for the built-in types.
    ///
    /// # Errors
    /// The first field that may not.
    pub fn check(&self, kind: &str, namespaced: bool, selectable: &[String]) -> Result<(), Error> {
        let _ = (kind, namespaced, selectable);
        Ok(())
    }

    /// Whether this selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        true
    }

    /// The name that is asked for if `metadata.name=x` is among the requirements, so that a list can be a get.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        None
    }

    /// Whether `object` is selected. A missing field counts as empty text.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let _ = object;
        true
    }
}

/// The fields beyond name and namespace on which the objects of a built-in type may be selected.
#[must_use]
pub fn selectable(group: &str, kind: &str) -> &'static [&'static str] {
    let _ = (group, kind);
    &[]
}
