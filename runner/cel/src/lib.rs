//! The Common Expression Language, evaluated within a budget.
//!
//! An expression is compiled once, against the types of what it may refer to, and evaluated many times. Compiling
//! finds unknown names, fields and functions and arguments of wrong types; evaluating ends within a [`Budget`] of
//! steps and bytes whatever the expression and the data are.
//!
//! ```
//! use cleat_cel::{Bindings, Budget, Env, Program, Type};
//! use serde_json::json;
//!
//! let schema = json!({"type": "object", "properties": {"stock": {"type": "integer"}}});
//! let state = Type::from_schema(&schema);
//! let env = Env::new().with("state", state.clone());
//!
//! let program = Program::compile("state.stock + 1", &env)?;
//! let bindings = Bindings::new().with("state", state.value(&json!({"stock": 41}))?);
//! let value = program.evaluate(&bindings, &mut Budget::default())?;
//! assert_eq!(value.to_json()?, json!(42));
//!
//! let problems = Program::compile("state.stok", &env).unwrap_err();
//! assert_eq!(problems.to_string(), "1:6: undefined field 'stok' (did you mean 'stock'?)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rules of CustomResourceDefinitions are compiled against [`Env::kubernetes`] and types from
//! [`Type::from_structural`]: then they see and may do what the API server lets them.

pub mod ast;
pub mod budget;
pub mod check;
mod cost;
mod env;
pub mod escape;
mod eval;
mod fault;
mod lexer;
mod library;
mod macros;
pub mod parser;
pub mod path;
mod plan;
pub mod position;
mod print;
mod program;
mod schema;
pub mod template;
mod types;
mod value;

pub use budget::{Budget, Exceeded};
pub use check::{Problem, check};
pub use cost::{Shape, estimate};
pub use env::Env;
pub use fault::{Error, Fault};
pub use parser::parse;
pub use path::Path;
pub use position::Position;
pub use program::{Bindings, Problems, Program};
pub use schema::Root;
pub use template::Template;
pub use types::{ListType, Object, Type};
pub use value::{Identity, Key, List, Map, Opaque, Value};
