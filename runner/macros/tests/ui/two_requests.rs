use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    async fn ask(&self, one: u32, other: u32) -> Result<u32, Never> {
        Ok(one + other)
    }
}

fn main() {}
