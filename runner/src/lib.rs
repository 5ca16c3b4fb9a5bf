//! The runtime of Cleat: sharded stateful entities and durable workflows.
//!
//! A folder is a noun of the domain. [`shard`] says where things live and who may write there,
//! [`message`] what is sent and answered, [`store`] is the only door to the database, [`transport`] how runners talk.

pub mod message;
pub mod shard;
pub mod store;
pub mod transport;
