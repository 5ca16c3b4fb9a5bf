use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    #[private]
    pub async fn ask(&self) -> Result<u32, Never> {
        Ok(1)
    }
}

fn main() {}
