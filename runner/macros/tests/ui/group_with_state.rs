use cleat_runner::prelude::*;

#[rpc_group]
struct Thing;

#[rpc_group_impl]
impl Thing {
    #[rpc]
    async fn ask(&self, state: &u32) -> Result<u32, Never> {
        Ok(*state)
    }
}

fn main() {}
