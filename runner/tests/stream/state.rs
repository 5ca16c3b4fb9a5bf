//! A stream and its entity's state.

use std::fmt;

use cleat_runner::prelude::*;

use crate::world::*;

on_both_stores!(
    the_state_commits_with_the_end_of_the_stream,
    a_stream_that_fails_leaves_the_state_as_it_was,
    a_stream_that_looks_at_the_state_sees_what_is_committed,
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Negative;

impl fmt::Display for Negative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it would be negative")
    }
}

#[entity(state = i64)]
pub struct Tally;

#[entity_impl]
impl Tally {
    /// Adds each number, and gives the sum so far.
    #[rpc(persisted, stream)]
    pub async fn add(
        &self,
        total: &mut i64,
        numbers: Vec<i64>,
        out: &mut Emitter<i64>,
    ) -> Result<(), Negative> {
        for number in numbers {
            *total += number;
            if *total < 0 {
                return Err(Negative);
            }
            out.emit(*total).await;
        }
        Ok(())
    }

    #[rpc]
    pub async fn get(&self, total: &i64) -> Result<i64, Never> {
        Ok(*total)
    }

    #[rpc(stream)]
    pub async fn down(&self, total: &i64, out: &mut Emitter<i64>) -> Result<(), Never> {
        for number in (0..*total).rev() {
            out.emit(number).await;
        }
        Ok(())
    }

    #[rpc(persisted)]
    pub async fn set(&self, total: &mut i64, to: i64) -> Result<(), Never> {
        *total = to;
        Ok(())
    }
}

async fn the_state_commits_with_the_end_of_the_stream(place: Place) {
    let world = World::new(place).await;
    let tally = Tally.register(&world.host).unwrap();
    let sums = tally.add("a", &vec![1, 2, 3]).stream().await.unwrap().collect().await.unwrap();
    assert_eq!(sums, [1, 3, 6]);
    assert_eq!(tally.get("a").await.unwrap(), 6);
    let sums = tally.add("a", &vec![4]).stream().await.unwrap().collect().await.unwrap();
    assert_eq!(sums, [10]);
    let address = cleat_runner::message::EntityAddress::new("tally", "a").unwrap();
    assert_eq!(world.store.state(&address).await.unwrap().unwrap().version, 2);
}

async fn a_stream_that_fails_leaves_the_state_as_it_was(place: Place) {
    let world = World::new(place).await;
    let tally = Tally.register(&world.host).unwrap();
    tally.set("a", &5).await.unwrap();
    let mut sums = tally.add("a", &vec![3, -10, 1]).stream().await.unwrap();
    assert_eq!(sums.next().await.unwrap().unwrap(), 8);
    assert_eq!(sums.next().await.unwrap().unwrap_err().refused(), Some(Negative));
    assert!(sums.next().await.is_none());
    assert_eq!(tally.get("a").await.unwrap(), 5);
}

async fn a_stream_that_looks_at_the_state_sees_what_is_committed(place: Place) {
    let world = World::new(place).await;
    let tally = Tally.register(&world.host).unwrap();
    let address = cleat_runner::message::EntityAddress::new("tally", "a").unwrap();
    for to in 1..50 {
        let set = tokio::spawn(tally.set("a", &to).into_future());
        // It is in the mailbox before the stream is.
        tokio::task::yield_now().await;
        let mut down = tally.down("a").stream().await.unwrap();
        let first = down.next().await.unwrap().unwrap();
        let stored = world.store.state(&address).await.unwrap().unwrap();
        assert_eq!((first, stored.version), (to - 1, to));
        set.await.unwrap().unwrap();
    }
}
