use cleat_runner::prelude::*;

struct Thing;

impl Thing {
    #[rpc]
    async fn ask(&self) -> Result<u32, Never> {
        Ok(1)
    }
}

fn main() {}
