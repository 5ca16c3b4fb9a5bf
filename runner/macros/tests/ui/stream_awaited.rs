use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc(stream)]
    pub async fn count(&self, to: u32, out: &mut Emitter<u32>) -> Result<(), Never> {
        for number in 0..to {
            out.emit(number).await;
        }
        Ok(())
    }
}

async fn ask(thing: &ThingClient) {
    let _ = thing.count("a", &3).await;
}

fn main() {}
