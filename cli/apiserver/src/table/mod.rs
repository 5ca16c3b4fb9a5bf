//! What a Table shows.

pub(crate) mod age;
pub(crate) mod path;
