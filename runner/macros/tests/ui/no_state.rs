use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    async fn ask(&self, state: &u32) -> Result<u32, Never> {
        Ok(*state)
    }
}

fn main() {}
