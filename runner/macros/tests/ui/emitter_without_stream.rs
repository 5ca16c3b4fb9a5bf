use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc(persisted)]
    async fn count(&self, to: u32, out: &mut Emitter<u32>) -> Result<(), Never> {
        out.emit(to).await;
        Ok(())
    }
}

fn main() {}
