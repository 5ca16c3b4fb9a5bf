use cleat_runner::prelude::*;

#[workflow]
struct Order;

#[workflow_impl]
impl Order {
    #[activity]
    async fn charge(&self) -> Result<(), Never> {
        Ok(())
    }
}

fn main() {}
