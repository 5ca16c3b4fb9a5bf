//! A transaction.
/// x
#[derive(Clone, Default)]
pub struct Tx;
