use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    #[protected]
    #[private]
    async fn ask(&self) -> Result<u32, Never> {
        Ok(1)
    }
}

fn main() {}
