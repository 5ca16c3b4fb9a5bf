//! Making one runner own the right shards.
//!
//! Each runner runs one [`Service`]. It holds the runner lock, follows the Leases, works out with everybody else who should have what,
//! claims what is its own and free, and hands over what is not. What to do about a shard next is a pure function of three
//! things: the shard's [`Phase`], whether it should be here, and what its Lease says. The rest carries that out.
//!
//! # Guarantees
//! - A shard is [opened](Host::open) only with a fence that no one had before, after everything that an earlier owner wrote is
//!   decided, and [handed over](Host::close) before its Lease is freed.
//! - Whoever dies is replaced at once; whoever joins is given shards after a short while. Shards move in parallel.
//! - Nothing of this ends because the lease service or the database is away. With one of the two a runner goes on; without both it
//!   lets go of its shards, and comes back by itself.
//! - Losing a race for a shard is no error.

mod book;
mod claim;
mod duties;
mod epochs;
mod handle;
mod host;
mod location;
mod lock;
mod metrics;
mod options;
mod phase;
mod proof;
mod reports;
mod sentinel;
mod service;
mod together;
mod wedge;

pub use epochs::Epochs;
pub use handle::{Handle, Stage, Status, Stopped, Unproven};
pub use host::{Host, NotOpened, Progress};
pub use location::Location;
pub use metrics::Metrics;
pub use options::{Options, Wedge};
pub use phase::Phase;
pub use service::{Parts, Service};
pub use together::Together;
