use cleat_runner::prelude::*;

#[workflow]
struct Order;

#[workflow_impl]
impl Order {
    async fn execute(&self, id: String) -> Result<String, String> {
        Ok(id)
    }

    #[activity]
    async fn charge(&self) -> u32 {
        7
    }
}

fn main() {}
