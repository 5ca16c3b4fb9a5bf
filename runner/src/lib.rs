//! The runtime of Cleat: sharded stateful entities and durable workflows.
