//! What goes when something else has gone: dependents after their owners, the contents of namespaces, the objects of definitions.

mod graph;
mod run;
mod work;

pub(crate) use run::run;
