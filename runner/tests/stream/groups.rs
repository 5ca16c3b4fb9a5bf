//! Streams of an RPC group.

use cleat_runner::prelude::*;

use crate::world::*;

on_both_stores!(a_group_can_stream);

#[rpc_group]
pub struct Lines {
    pub text: &'static str,
}

#[rpc_group_impl]
impl Lines {
    #[rpc(stream)]
    pub fn lines(&self) -> impl Stream<Item = Result<String, Never>> {
        futures::stream::iter(self.text.lines().map(|line| Ok(line.to_owned())))
    }

    #[rpc(persisted, stream)]
    pub async fn words(&self, out: &mut Emitter<String>) -> Result<(), Never> {
        for word in self.text.split_whitespace() {
            out.emit(word.to_owned()).await;
        }
        Ok(())
    }
}

#[entity]
pub struct Page;

#[entity_impl(rpc_groups(Lines))]
impl Page {}

async fn a_group_can_stream(place: Place) {
    let world = World::new(place).await;
    let page = Page.register(&world.host, Lines { text: "one two\nthree" }).unwrap();
    let lines = page.lines("p").stream().await.unwrap().collect().await.unwrap();
    assert_eq!(lines, ["one two", "three"]);
    let words = page.words("p").stream().await.unwrap().collect().await.unwrap();
    assert_eq!(words, ["one", "two", "three"]);
}
