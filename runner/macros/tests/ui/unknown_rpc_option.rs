use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc(persist)]
    async fn ask(&self) -> Result<u32, Never> {
        Ok(1)
    }
}

fn main() {}
