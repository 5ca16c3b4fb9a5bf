use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc(stream)]
    async fn count(&self, to: u32) -> Result<u32, Never> {
        Ok(to)
    }
}

fn main() {}
