use cleat_runner::prelude::*;

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc(stream)]
    fn count(&self, to: u32) -> impl Stream<Item = u32> {
        futures::stream::iter(0..to)
    }
}

fn main() {}
