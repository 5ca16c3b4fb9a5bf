use cleat_runner::prelude::*;

#[workflow]
struct Order;

#[workflow_impl(keys = |id: &String| id.clone())]
impl Order {
    async fn execute(&self, id: String) -> Result<String, String> {
        Ok(id)
    }
}

fn main() {}
