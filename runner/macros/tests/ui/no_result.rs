use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    async fn ask(&self, request: u32) -> u32 {
        request
    }
}

fn main() {}
