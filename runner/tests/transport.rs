//! Two peers over real sockets: what arrives, how often, in which order, and what is said when it cannot.

#[path = "transport/admission.rs"]
mod admission;
#[path = "transport/calls.rs"]
mod calls;
#[path = "transport/flow.rs"]
mod flow;
#[path = "transport/health.rs"]
mod health;
#[path = "transport/proxy.rs"]
mod proxy;
#[path = "transport/recovery.rs"]
mod recovery;
#[path = "transport/streams.rs"]
mod streams;
#[path = "transport/world.rs"]
mod world;
