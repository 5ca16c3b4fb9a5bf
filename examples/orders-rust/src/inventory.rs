//! What is on the shelf, and what of it is set aside.

use std::collections::BTreeMap;
use std::fmt;

use cleat_runner::prelude::*;

/// What is known of one item.
#[derive(Default, Serialize, Deserialize)]
pub struct Stock {
    on_hand: i64,
    reserved: BTreeMap<String, i64>,
}

/// So many more.
#[derive(Serialize, Deserialize)]
pub struct Restock {
    /// How many.
    pub count: i64,
}

/// Sets some aside for an order.
#[derive(Serialize, Deserialize)]
pub struct Reserve {
    /// For whom.
    pub order: String,
    /// How many.
    pub count: i64,
}

/// Puts back what was set aside.
#[derive(Serialize, Deserialize)]
pub struct Release {
    /// For whom it was.
    pub order: String,
}

/// There is not enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfStock {
    /// How many there are.
    pub left: i64,
}

impl fmt::Display for OutOfStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} left", self.left)
    }
}

/// One item of the shop; its id is what it is.
#[entity(name = "inventory", state = Stock, concurrency = 1)]
pub struct Inventory;

#[entity_impl]
impl Inventory {
    /// More of it. Gives how many there are.
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut Stock, request: Restock) -> Result<i64, Never> {
        stock.on_hand += request.count;
        Ok(stock.on_hand)
    }

    /// Sets some aside, once for each order.
    #[rpc(persisted)]
    pub async fn reserve(&self, stock: &mut Stock, request: Reserve) -> Result<i64, OutOfStock> {
        if stock.on_hand < request.count {
            return Err(OutOfStock { left: stock.on_hand });
        }
        stock.on_hand -= request.count;
        stock.reserved.insert(request.order, request.count);
        Ok(stock.on_hand)
    }

    /// Puts back what was set aside, if anything was.
    #[rpc(persisted)]
    pub async fn release(&self, stock: &mut Stock, request: Release) -> Result<(), Never> {
        stock.on_hand += stock.reserved.remove(&request.order).unwrap_or_default();
        Ok(())
    }

    /// What is set aside, one order after the other.
    #[rpc(stream)]
    pub async fn reservations(&self, stock: &Stock, items: &mut Emitter<Reserve>) -> Result<(), Never> {
        for (order, &count) in &stock.reserved {
            items.emit(Reserve { order: order.clone(), count }).await;
        }
        Ok(())
    }

    /// How many there are.
    #[rpc]
    pub async fn get(&self, stock: &Stock) -> Result<i64, Never> {
        Ok(stock.on_hand)
    }
}
