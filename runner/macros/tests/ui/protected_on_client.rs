use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc]
    #[protected]
    async fn ask(&self) -> Result<u32, Never> {
        Ok(1)
    }
}

fn main() {
    fn ask(client: &ThingClient) {
        let _ = client.ask("a");
    }
    let _ = ask;
}
