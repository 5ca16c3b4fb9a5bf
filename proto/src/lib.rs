//! The wire of Cleat: what runners, operator and clients say to each other.
//!
//! The Rust code is generated from the `.proto` files of this crate and checked in, so that building Cleat needs no
//! protobuf compiler. A test keeps the two equal; `CLEAT_REGENERATE=1 cargo test -p cleat-proto` rewrites the code.

/// The first version of the protocol.
#[allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "generated code"
)]
pub mod v1 {
    include!("generated/cleat.v1.rs");
}

/// What users ask over gRPC.
pub mod gateway {
    /// The first version of it.
    #[allow(
        missing_docs,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "generated code"
    )]
    pub mod v1 {
        include!("generated/cleat.gateway.v1.rs");
    }
}
