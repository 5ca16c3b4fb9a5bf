//! Two peers over real sockets: what arrives, how often, in which order, and what is said when it cannot.

#[cfg(test)]
#[path = "transport/admission.rs"]
mod admission;
#[cfg(test)]
#[path = "transport/calls.rs"]
mod calls;
#[cfg(test)]
#[path = "transport/flow.rs"]
mod flow;
#[cfg(test)]
#[path = "transport/health.rs"]
mod health;
#[cfg(test)]
#[path = "transport/proxy.rs"]
mod proxy;
#[cfg(test)]
#[path = "transport/recovery.rs"]
mod recovery;
#[cfg(test)]
#[path = "transport/streams.rs"]
mod streams;
#[cfg(test)]
#[path = "transport/world.rs"]
mod world;
