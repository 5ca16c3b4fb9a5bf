use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    async fn ask(&self) -> Result<u32, Never> {
        Ok(1)
    }

    #[rpc(persisted)]
    async fn ask(&self) -> Result<u32, Never> {
        Ok(2)
    }
}

fn main() {}
