//! The orders of `examples/orders`, in Rust.

mod inventory;
mod order;
mod payments;

use cleat_runner::prelude::*;

pub use inventory::{Inventory, InventoryClient, OutOfStock, Release, Reserve, Restock};
pub use order::{Order, OrderError, OrderRequest};
pub use payments::{CardRefused, Charge, Payments, PaymentsClient, Receipt};

/// A runner that serves all of it.
pub fn serve(runner: Runner) -> Runner {
    runner
        .entity(Inventory)
        .entity(Payments)
        .with(|node| {
            let (inventory, payments) = (InventoryClient::new(node)?, PaymentsClient::new(node)?);
            Order { inventory, payments }.register(node).map(drop)
        })
        .cron(|node| {
            // Each night there are a hundred more apples.
            let schedule = Schedule::new("0 3 * * *")?.in_zone("Europe/Berlin")?;
            let inventory = InventoryClient::new(node).map_err(|error| error.to_string())?;
            let restock = inventory.restock("apples", &Restock { count: 100 });
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Cron::new("restock", schedule, restock))
        })
}
