use cleat_runner::prelude::*;

#[entity(state = u32)]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    async fn ask(&self, state: &mut u32) -> Result<u32, Never> {
        *state += 1;
        Ok(*state)
    }
}

fn main() {}
