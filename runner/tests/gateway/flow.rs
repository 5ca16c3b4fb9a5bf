//! The workflow that users start.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cleat_runner::prelude::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    pub item: String,
    pub count: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoldOut {
    pub item: String,
}

impl fmt::Display for SoldOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} left", self.item)
    }
}

/// Its starts with the same item are one, whatever else they say.
#[workflow(name = "stocktaking")]
#[derive(Clone, Default)]
pub struct Stocktaking;

#[workflow_impl(key = |wanted: &Wanted| wanted.item.clone())]
impl Stocktaking {
    async fn execute(&self, wanted: Wanted) -> Result<i64, Never> {
        Ok(wanted.count)
    }
}

/// Reserves, waits for an approval, and packs.
#[workflow(name = "order")]
#[derive(Clone, Default)]
pub struct Order {
    /// Whether there is anything to reserve.
    pub empty: Arc<AtomicBool>,
    pub reserved: Arc<AtomicUsize>,
}

#[workflow_impl]
impl Order {
    async fn execute(&self, wanted: Wanted) -> Result<String, SoldOut> {
        self.show("status", "reserving");
        self.reserve(wanted.clone()).await?;
        self.show("status", "waiting");
        let by: String = self.signal("approved").await;
        Ok(format!("{} {} for {by}", wanted.count, wanted.item))
    }

    #[activity]
    async fn reserve(&self, wanted: Wanted) -> Result<i64, SoldOut> {
        if self.empty.load(Ordering::SeqCst) {
            return Err(SoldOut { item: wanted.item });
        }
        self.reserved.fetch_add(1, Ordering::SeqCst);
        Ok(wanted.count)
    }
}
