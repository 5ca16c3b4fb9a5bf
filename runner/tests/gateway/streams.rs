//! Streams as server-sent events.

use http::Method;
use serde_json::{Value, json};

use crate::client::Event;
use crate::world::World;

fn data(events: &[Event]) -> Vec<Value> {
    events.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volatile_stream_comes_item_by_item_from_any_runner() {
    let world = World::new().await;
    let runners = world.two().await;
    let path = format!("/v1/entities/shelf/{}", runners[0].shelf_here());
    for runner in &runners {
        let events = runner.http.events(Method::POST, &format!("{path}/count"), &[], json!(500)).await;
        assert_eq!(events.location, None);
        let events = events.rest().await;
        assert!(events.iter().all(|event| event.id.is_empty()));
        let (end, items) = events.split_last().unwrap();
        assert_eq!(data(items), (0..500).map(Value::from).collect::<Vec<_>>());
        assert_eq!((end.name.as_str(), end.data.as_str()), ("end", "null"));
        // One that fails says so at its end.
        let events =
            runner.http.events(Method::POST, &format!("{path}/take"), &[], json!(3)).await.rest().await;
        let (end, items) = events.split_last().unwrap();
        assert_eq!(data(items), [0, 1].map(Value::from));
        assert_eq!(end.name, "problem");
        let problem: Value = serde_json::from_str(&end.data).unwrap();
        assert_eq!((&problem["reason"], &problem["details"]), (&json!("OutOfStock"), &json!({ "left": 0 })));
    }
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persisted_stream_is_gone_on_with_after_the_last_item_that_was_seen() {
    let world = World::new().await;
    let runners = world.two().await;
    let path = format!("/v1/entities/shelf/{}/list", runners[0].shelf_here());
    let mut events = runners[1].http.events(Method::POST, &path, &[], json!(6)).await;
    let location = events.location.clone().unwrap();
    let mut last = Event::default();
    for number in 0..3 {
        last = events.next().await.unwrap();
        assert_eq!(last.data, number.to_string());
        assert_eq!(format!("/v1/requests/{}", last.id), format!("{location}.{number}"));
    }
    world.waiting(1).await;
    drop(events);
    world.go_on(1);
    let expected = |from: u32| (from..6).map(Value::from).collect::<Vec<_>>();
    // From the other runner, as a browser would: the same request with the last id. It is not run again.
    let resumed = [("last-event-id", last.id.as_str())];
    let events = runners[0].http.events(Method::POST, &path, &resumed, json!(6)).await.rest().await;
    let (end, items) = events.split_last().unwrap();
    assert_eq!((data(items), end.name.as_str()), (expected(3), "end"));
    // Or where the first answer said that the request is.
    let events = runners[1].http.events(Method::GET, &location, &resumed, json!(null)).await.rest().await;
    assert_eq!(data(&events[..3]), expected(3));
    let events = runners[1].http.events(Method::GET, &location, &[], json!(null)).await.rest().await;
    assert_eq!(data(&events[..6]), expected(0));
    let state = runners[0].http.get(&location).await.json();
    assert_eq!(state["state"], "Completed");
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persisted_stream_moves_with_its_entity_and_its_reader_with_the_gateway() {
    let world = World::new().await;
    let [mut here, there] = world.two().await;
    let path = format!("/v1/entities/shelf/{}/list", there.shelf_here());
    let mut events = here.http.events(Method::POST, &path, &[], json!(5)).await;
    let mut last = Event::default();
    for _ in 0..3 {
        last = events.next().await.unwrap();
    }
    world.waiting(1).await;
    // The gateway stops: the stream ends without a last word, which tells its reader to come back.
    let closing = tokio::spawn(async move {
        here.close().await;
        here
    });
    assert_eq!(events.next().await, None);
    let here = closing.await.unwrap();
    let resumed = [("last-event-id", last.id.as_str())];
    let events = there.http.events(Method::POST, &path, &resumed, json!(5)).await;
    world.go_on(1);
    assert_eq!(data(&events.rest().await), [json!(3), json!(4), json!(null)]);
    for runner in [here, there] {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_stream_is_said_before_it_begins() {
    let world = World::new().await;
    let runner = world.one().await;
    let events = [("accept", "text/event-stream")];
    let post = async |path: &str, headers: &[(&str, &str)]| {
        let headers = [&events[..], headers].concat();
        runner.http.post_with(path, &headers, json!(1)).await.problem()
    };
    assert_eq!(post("/v1/entities/shelf/a/echo", &[]).await, (400, "NotStreaming".to_owned()));
    assert_eq!(post("/v1/entities/shelf/a/none", &[]).await, (404, "UnknownMethod".to_owned()));
    let nowhere = [("last-event-id", "7")];
    assert_eq!(post("/v1/entities/shelf/a/list", &nowhere).await, (400, "InvalidParameter".to_owned()));
    let keyed = [("idempotency-key", "k")];
    assert_eq!(
        runner.http.post_with("/v1/entities/shelf/a/list", &keyed, json!(2)).await.problem().1,
        "Streams"
    );
    let unknown = "/v1/requests/default-0000-0000000000000001";
    let reply = runner.http.send(Method::GET, unknown, &events, "").await;
    assert_eq!(reply.problem(), (404, "NoSuchRequest".to_owned()));
    runner.shutdown().await;
}
