use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc(stream)]
    async fn count(&self, to: u32, out: &mut Emitter<u32>) -> Result<u32, Never> {
        out.emit(to).await;
        Ok(to)
    }

    #[rpc(stream)]
    async fn twice(&self, _a: &mut Emitter<u32>, _b: &mut Emitter<u32>) -> Result<(), Never> {
        Ok(())
    }
}

fn main() {}
