//! What is paid for orders.

use std::fmt;

use cleat_runner::prelude::*;

/// What to pay.
#[derive(Serialize, Deserialize)]
pub struct Charge {
    /// How much.
    pub amount: i64,
}

/// It was paid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// What proves it.
    pub receipt: String,
}

/// Nobody pays so much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRefused;

impl fmt::Display for CardRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the card was refused")
    }
}

/// The account of one order; its id is the order's.
#[entity(name = "payments", state = i64, concurrency = 1)]
pub struct Payments;

#[entity_impl]
impl Payments {
    /// Takes money.
    #[rpc(persisted)]
    pub async fn charge(&self, charged: &mut i64, request: Charge) -> Result<Receipt, CardRefused> {
        if request.amount > 1_000_000 {
            return Err(CardRefused);
        }
        *charged += request.amount;
        Ok(Receipt { receipt: format!("r-{charged}") })
    }

    /// Gives all of it back.
    #[rpc(persisted)]
    pub async fn refund(&self, charged: &mut i64) -> Result<(), Never> {
        *charged = 0;
        Ok(())
    }

    /// What was paid so far.
    #[rpc]
    pub async fn get(&self, charged: &i64) -> Result<i64, Never> {
        Ok(*charged)
    }
}
