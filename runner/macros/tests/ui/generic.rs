use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    async fn ask<T: Send>(&self, request: T) -> Result<u32, Never> {
        drop(request);
        Ok(1)
    }
}

fn main() {}
