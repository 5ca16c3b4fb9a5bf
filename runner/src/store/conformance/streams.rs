//! Streamed replies: chunks, acknowledgements, watermarks. And timers.

use super::world::*;
use crate::message::{Sequence, Snowflake};
use crate::shard::Slot;
use crate::store::{Change, Timer, Watermark};

fn part(request: Snowflake, sequence: i32, item: &'static str) -> Change {
    Change::Chunk { request, slot: Slot::of("x"), chunk: chunk(sequence, &[item]) }
}

fn ack(request: Snowflake, sequence: i32) -> Change {
    Change::Ack { request, sequence: Sequence(sequence) }
}

fn marks(stored: Option<i32>, acked: Option<i32>) -> Watermark {
    Watermark { stored: stored.map(Sequence), acked: acked.map(Sequence) }
}

async fn five_chunks<D: Database>(world: &World<D>) -> (Desk, Snowflake) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    for (sequence, item) in (0..).zip(["zero", "one", "two", "three", "four"]) {
        desk.apply("x", vec![part(world.id(1), sequence, item)]).await;
    }
    (desk, world.id(1))
}

async fn sequences(desk: &Desk, request: Snowflake, after: Option<i32>, limit: u32) -> Vec<i32> {
    let chunks = desk.store.chunks(request, after.map(Sequence), limit).await.unwrap();
    chunks.iter().map(|chunk| chunk.sequence.0).collect()
}

pub async fn chunks_come_back_in_order_and_as_they_were<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let request = world.id(1);
    let parts = [chunk(0, &["a", "", "größe"]), chunk(1, &[]), chunk(2, &["b"])];
    for index in [2, 0, 1] {
        desk.apply("x", vec![Change::Chunk { request, slot: Slot::of("x"), chunk: parts[index].clone() }])
            .await;
    }
    assert_eq!(desk.store.chunks(request, None, 10).await.unwrap(), parts);
    assert!(desk.store.chunks(world.id(2), None, 10).await.unwrap().is_empty());
}

pub async fn chunks_come_after_a_given_one_and_no_more_than_asked_for<D: Database>(world: World<D>) {
    let (desk, request) = five_chunks(&world).await;
    assert_eq!(sequences(&desk, request, None, 2).await, [0, 1]);
    assert_eq!(sequences(&desk, request, Some(1), 2).await, [2, 3]);
    assert_eq!(sequences(&desk, request, Some(3), 2).await, [4]);
    assert!(sequences(&desk, request, Some(4), 2).await.is_empty());
}

pub async fn a_chunk_that_is_stored_again_is_left_as_it_is<D: Database>(world: World<D>) {
    let (desk, request) = five_chunks(&world).await;
    desk.apply("x", vec![part(request, 2, "another"), state("x", 0, "v")]).await;
    let chunks = desk.store.chunks(request, Some(Sequence(1)), 1).await.unwrap();
    assert_eq!(chunks, [chunk(2, &["two"])]);
    assert_eq!(desk.store.state(&address("x")).await.unwrap().unwrap().version, 1);
}

pub async fn chunks_that_are_submitted_at_once_are_all_stored<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for sequence in (0..50).chain(0..50) {
        receipts.push(desk.submit("x", vec![part(world.id(1), sequence, "item")]).await);
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(sequences(&desk, world.id(1), None, 100).await, (0..50).collect::<Vec<_>>());
}

pub async fn an_acknowledgement_forgets_chunks_and_raises_the_watermark<D: Database>(world: World<D>) {
    let (desk, request) = five_chunks(&world).await;
    assert_eq!(desk.store.watermark(request).await.unwrap(), marks(Some(4), None));
    desk.apply("x", vec![ack(request, 1)]).await;
    assert_eq!(desk.store.watermark(request).await.unwrap(), marks(Some(4), Some(1)));
    assert_eq!(sequences(&desk, request, None, 10).await, [2, 3, 4]);
}

pub async fn a_watermark_only_rises<D: Database>(world: World<D>) {
    let (desk, request) = five_chunks(&world).await;
    desk.apply("x", vec![ack(request, 3)]).await;
    desk.apply("x", vec![ack(request, 0)]).await;
    assert_eq!(desk.store.watermark(request).await.unwrap(), marks(Some(4), Some(3)));
    assert_eq!(sequences(&desk, request, None, 10).await, [4]);
}

pub async fn a_watermark_remembers_chunks_that_are_no_longer_kept<D: Database>(world: World<D>) {
    let (desk, request) = five_chunks(&world).await;
    desk.apply("x", vec![ack(request, 4)]).await;
    assert!(sequences(&desk, request, None, 10).await.is_empty());
    assert_eq!(desk.store.watermark(request).await.unwrap(), marks(Some(4), Some(4)));
}

pub async fn an_acknowledged_chunk_does_not_come_back<D: Database>(world: World<D>) {
    let (desk, request) = five_chunks(&world).await;
    desk.apply("x", vec![ack(request, 2)]).await;
    desk.apply("x", vec![part(request, 1, "again")]).await;
    assert_eq!(sequences(&desk, request, None, 10).await, [3, 4]);
}

pub async fn chunks_outlive_the_end_of_their_request<D: Database>(world: World<D>) {
    let (desk, request) = five_chunks(&world).await;
    desk.apply("x", vec![part(request, 5, "five"), world.finish(1, "end")]).await;
    assert_eq!(sequences(&desk, request, Some(3), 10).await, [4, 5]);
    desk.apply("x", vec![ack(request, 5)]).await;
    assert_eq!(desk.store.watermark(request).await.unwrap(), marks(Some(5), Some(5)));
}

fn set(timer: &Timer) -> Vec<Change> {
    vec![Change::SetTimer(timer.clone())]
}

pub async fn timers_come_by_horizon_and_soonest_first<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let [late, soon, middle] =
        [("late", 30), ("soon", 10), ("middle", 20)].map(|(name, at)| timer("x", name, world.at(at)));
    for timer in [&late, &soon, &middle] {
        desk.apply("x", set(timer)).await;
    }
    let shard = desk.shard("x");
    let due = async |seconds, limit| {
        desk.store.timers(std::slice::from_ref(&shard), world.at(seconds), limit).await.unwrap()
    };
    assert!(due(9, 10).await.is_empty());
    assert_eq!(due(10, 10).await, std::slice::from_ref(&soon));
    assert_eq!(due(29, 10).await, [soon.clone(), middle.clone()]);
    assert_eq!(due(100, 1).await, std::slice::from_ref(&soon));
    assert_eq!(due(100, 10).await, [soon, middle, late]);
}

pub async fn a_timer_that_is_set_again_is_moved<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", set(&timer("x", "t", world.at(10)))).await;
    let mut moved = timer("x", "t", world.at(50));
    moved.payload = bytes::Bytes::new();
    desk.apply("x", set(&moved)).await;
    assert!(desk.store.timers(&[desk.shard("x")], world.at(49), 10).await.unwrap().is_empty());
    assert_eq!(desk.store.timers(&[desk.shard("x")], world.at(50), 10).await.unwrap(), [moved]);
}

pub async fn a_timer_can_be_taken_away_whether_it_is_there_or_not<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let kept = timer("x", "kept", world.at(1));
    desk.apply("x", set(&kept)).await;
    desk.apply("x", set(&timer("x", "gone", world.at(1)))).await;
    for _ in 0..2 {
        let (address, name) = (address("x"), "gone".to_owned());
        desk.apply("x", vec![Change::ClearTimer { address, name }]).await;
    }
    assert_eq!(desk.store.timers(&[desk.shard("x")], far(), 10).await.unwrap(), [kept]);
}

pub async fn a_timer_belongs_to_the_shard_of_its_entity<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let away = (0..).map(|n| format!("y{n}")).find(|y| desk.shard(y) != desk.shard("x")).unwrap();
    let (here, there) = (timer("x", "t", world.at(1)), timer(&away, "t", world.at(1)));
    desk.apply("x", set(&here)).await;
    desk.apply(&away, set(&there)).await;
    assert_eq!(desk.store.timers(&[desk.shard("x")], far(), 10).await.unwrap(), [here]);
    assert_eq!(desk.store.timers(&[desk.shard(&away)], far(), 10).await.unwrap(), [there]);
}
