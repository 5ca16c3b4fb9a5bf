//! What is done for an order.

use std::fmt;

use cleat_runner::prelude::*;
use cleat_runner::workflow::{Either, select};

use crate::{CardRefused, Charge, InventoryClient, OutOfStock, PaymentsClient, Receipt, Release, Reserve};

/// What somebody orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRequest {
    /// Which order it is. Ordering twice is ordering once.
    pub order: String,
    /// Of what.
    pub item: String,
    /// How many.
    pub count: i64,
    /// For how much.
    pub amount: i64,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderError {
    /// There is not enough.
    OutOfStock(OutOfStock),
    /// Nobody pays so much.
    CardRefused,
    /// Nobody approved it in time.
    NotApproved,
    /// Somebody could not be asked.
    Unavailable(String),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfStock(error) => error.fmt(f),
            Self::CardRefused => CardRefused.fmt(f),
            Self::NotApproved => f.write_str("nobody approved it in time"),
            Self::Unavailable(error) => f.write_str(error),
        }
    }
}

impl From<client::Error<OutOfStock>> for OrderError {
    fn from(error: client::Error<OutOfStock>) -> Self {
        match error {
            client::Error::Refused(refused) => Self::OutOfStock(refused),
            client::Error::Entity(error) => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<client::Error<CardRefused>> for OrderError {
    fn from(error: client::Error<CardRefused>) -> Self {
        match error {
            client::Error::Refused(CardRefused) => Self::CardRefused,
            client::Error::Entity(error) => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<client::Error<Never>> for OrderError {
    fn from(error: client::Error<Never>) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// An error that no further attempt changes.
fn is_final(error: &OrderError) -> bool {
    !matches!(error, OrderError::Unavailable(_))
}

/// Reserves, charges, waits for approval if it is dear, and packs. If a step fails, those before it are undone.
#[workflow(name = "order", timeout = "24h")]
pub struct Order {
    /// Who has the goods.
    pub inventory: InventoryClient,
    /// Who has the money.
    pub payments: PaymentsClient,
}

#[workflow_impl(key = |request: &OrderRequest| request.order.clone())]
impl Order {
    async fn execute(&self, request: OrderRequest) -> Result<Receipt, OrderError> {
        self.show("status", "reserving");
        self.reserve(request.clone()).await?;
        let (item, order) = (request.item.clone(), request.order.clone());
        self.compensate(move |me| me.release(item, order));
        let receipt = self.charge(request.order.clone(), request.amount).await?;
        let order = request.order.clone();
        self.compensate(move |me| me.refund(order));
        if request.amount > 10_000 {
            self.show("status", "waiting for approval");
            let hour = self.sleep(Duration::from_secs(3600));
            if let Either::Second(()) = select(self.signal::<String>("approved"), hour).await {
                return Err(OrderError::NotApproved);
            }
        }
        self.show("status", "packing");
        self.sleep(Duration::from_secs(2)).await;
        Ok(receipt)
    }

    #[activity(retries = 5, interval = "1s", no_retry = is_final)]
    async fn reserve(&self, request: OrderRequest) -> Result<i64, OrderError> {
        let reserve = Reserve { order: request.order, count: request.count };
        Ok(self.inventory.reserve(&request.item, &reserve).key(self.key()).await?)
    }

    #[activity(retries = 100, interval = "1s")]
    async fn release(&self, item: String, order: String) -> Result<(), OrderError> {
        Ok(self.inventory.release(&item, &Release { order }).key(self.key()).await?)
    }

    #[activity(retries = 5, interval = "1s", no_retry = is_final)]
    async fn charge(&self, order: String, amount: i64) -> Result<Receipt, OrderError> {
        Ok(self.payments.charge(&order, &Charge { amount }).key(self.key()).await?)
    }

    #[activity(retries = 100, interval = "1s")]
    async fn refund(&self, order: String) -> Result<(), OrderError> {
        Ok(self.payments.refund(&order).key(self.key()).await?)
    }
}
