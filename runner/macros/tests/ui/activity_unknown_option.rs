use cleat_runner::prelude::*;

#[workflow]
struct Order;

#[workflow_impl]
impl Order {
    async fn execute(&self, id: String) -> Result<String, String> {
        Ok(id)
    }

    #[activity(tries = 3)]
    async fn charge(&self) -> Result<(), Never> {
        Ok(())
    }
}

fn main() {}
