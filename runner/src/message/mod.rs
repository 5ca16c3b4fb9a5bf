//! What is sent and what is answered.

mod address;
pub mod codec;
mod envelope;
mod key;
mod reply;
mod request_id;
pub mod snowflake;
mod trace;

pub use address::{EntityAddress, EntityId, EntityType, InvalidAddress};
pub use envelope::{Envelope, Headers, Uninterruptible};
pub use key::{IdempotencyKey, PayloadDigest};
pub use reply::{Body, Chunk, Defect, Failure, Outcome, Reply, Sequence};
pub use request_id::{InvalidRequestId, RequestId};
pub use snowflake::Snowflake;
pub use trace::{InvalidTraceParent, TraceContext};
