use std::pin::Pin;
use std::task::{Context, Poll};

use cleat_runner::prelude::{Stream, entity, entity_impl};

struct Nothing;

impl Stream for Nothing {
    type Item = u32;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u32>> {
        Poll::Ready(None)
    }
}

#[entity]
struct Thing;

#[entity_impl]
impl Thing {
    #[rpc(stream)]
    async fn count(&self, _to: u32) -> impl Stream<Item = u32> {
        Nothing
    }
}

fn main() {}
