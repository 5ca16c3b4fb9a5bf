//! The systems that are measured: us, and the peers.

use std::path::PathBuf;

/// A peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// Entities and workflows on PostgreSQL, in Rust.
    Cruster,
    /// Objects and workflows with a server and a log of its own.
    Restate,
    /// Workflows on PostgreSQL, in Python.
    Dbos,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cruster, Self::Restate, Self::Dbos];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cruster => "cruster",
            Self::Restate => "Restate",
            Self::Dbos => "DBOS",
        }
    }
}

/// A measured system.
#[derive(Debug, Clone)]
pub enum System {
    /// Us.
    Cleat,
    /// By its program.
    Cruster(PathBuf),
    /// By the programs of its server and of its service.
    Restate {
        /// The server.
        server: PathBuf,
        /// The service.
        service: PathBuf,
    },
    /// By an interpreter that knows it and a program.
    Dbos {
        /// The interpreter.
        python: PathBuf,
        /// The program.
        script: PathBuf,
    },
}

/// What a peer has shown where we have shown something.
#[derive(Debug, Clone)]
pub enum Beside<T> {
    /// By whom, and what.
    Measured(&'static str, T),
    /// By whom nothing.
    Missing(&'static str),
    /// Nobody asked for a peer.
    Unwanted,
}

impl<T> Beside<T> {
    /// The same as a reference.
    pub fn as_ref(&self) -> Beside<&T> {
        match self {
            Self::Measured(name, measured) => Beside::Measured(name, measured),
            Self::Missing(name) => Beside::Missing(name),
            Self::Unwanted => Beside::Unwanted,
        }
    }

    /// The same with something else made of what was measured.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Beside<U> {
        match self {
            Self::Measured(name, measured) => Beside::Measured(name, make(measured)),
            Self::Missing(name) => Beside::Missing(name),
            Self::Unwanted => Beside::Unwanted,
        }
    }
}
