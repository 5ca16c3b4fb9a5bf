use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    async fn ask(&mut self, request: u32) -> Result<u32, Never> {
        Ok(request)
    }
}

fn main() {}
