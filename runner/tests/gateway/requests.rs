//! Requests by their ids.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::nodes;
use crate::world::{World, short};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_too_long_goes_on_and_says_under_which_id() {
    let world = World::new().await;
    let runner = world.one_with(short(Duration::from_millis(500))).await;
    for headers in [&[][..], &[("idempotency-key", "k")][..]] {
        let reply = runner.http.post_with("/v1/entities/shelf/apples/hold", headers, json!(9)).await;
        assert_eq!(reply.problem(), (504, "TimedOut".to_owned()));
        let id = reply.json()["request"].as_str().unwrap().to_owned();
        let location = format!("/v1/requests/{id}");
        assert_eq!(runner.http.get(&location).await.json()["state"], "Pending");
        world.waiting(1).await;
        world.go_on(1);
        let ended = runner.http.get(&format!("{location}?wait=50s")).await;
        assert_eq!(ended.json(), json!({ "request": id, "state": "Completed", "output": 9 }));
    }
    // Nobody can be told what became of a volatile call.
    let reply = runner.http.post("/v1/entities/shelf/apples/wait", json!(null)).await;
    assert_eq!(reply.problem(), (504, "TimedOut".to_owned()));
    assert!(reply.json().get("request").is_none());
    world.go_on(1);
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_runs_is_interrupted() {
    let world = World::new().await;
    let runners = world.two().await;
    let path = format!("/v1/entities/shelf/{}/hold", runners[0].shelf_here());
    let reply = runners[1].http.post_with(&path, &[("prefer", "respond-async")], json!(1)).await;
    let location = reply.header("location").to_owned();
    world.waiting(1).await;
    let stopped = runners[1].http.delete(&location).await;
    assert_eq!((stopped.status.as_u16(), stopped.json()["state"].clone()), (202, json!("Pending")));
    let ended = runners[1].http.get(&format!("{location}?wait=50s")).await;
    assert_eq!(ended.json()["problem"]["reason"], "Interrupted");
    // It has ended: there is nothing to stop any more.
    let stopped = runners[1].http.delete(&location).await;
    assert_eq!((stopped.status.as_u16(), stopped.json()["state"].clone()), (200, json!("Failed")));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_survives_the_drain_of_the_runner_that_does_the_work() {
    let world = World::new().await;
    let [here, there] = world.two().await;
    let path = format!("/v1/entities/shelf/{}/hold", there.shelf_here());
    let reply = here.http.post_with(&path, &[("prefer", "respond-async")], json!(4)).await;
    let location = reply.header("location").to_owned();
    world.waiting(1).await;
    let waits = tokio::spawn({
        let (http, location) = (here.http.clone(), format!("{location}?wait=55s"));
        async move { http.get(&location).await }
    });
    // And a call that waits for its reply.
    let calls = tokio::spawn({
        let http = here.http.clone();
        async move { http.post(&path, json!(5)).await }
    });
    world.waiting(1).await;
    let leaving = tokio::spawn(there.shutdown());
    // They are run again, on the runner that is left.
    world.waiting(2).await;
    world.go_on(4);
    assert_eq!(waits.await.unwrap().json()["output"], 4);
    let called = calls.await.unwrap();
    assert_eq!((called.status.as_u16(), called.json()), (200, json!(5)));
    leaving.await.unwrap();
    nodes::spread(&[&here.node]).await;
    here.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_when_the_gateway_stops_is_told_what_is_known_and_asks_elsewhere() {
    let world = World::new().await;
    let [mut here, there] = world.two().await;
    let path = format!("/v1/entities/shelf/{}/hold", there.shelf_here());
    let reply = here.http.post_with(&path, &[("prefer", "respond-async")], json!(4)).await;
    let location = reply.header("location").to_owned();
    world.waiting(1).await;
    let waits = tokio::spawn({
        let (http, location) = (here.http.clone(), format!("{location}?wait=55s"));
        async move { http.get(&location).await }
    });
    let calls = tokio::spawn({
        let (http, path) = (here.http.clone(), path.clone());
        async move { http.post(&path, json!(6)).await }
    });
    world.waiting(1).await;
    let address = here.http.address;
    let closing = tokio::spawn(async move {
        here.close().await;
        here
    });
    assert_eq!(waits.await.unwrap().json()["state"], "Pending");
    // A call that runs is answered.
    world.go_on(2);
    assert_eq!(calls.await.unwrap().json(), json!(6));
    let here = closing.await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody is let in any more");
    assert_eq!(there.http.get(&format!("{location}?wait=55s")).await.json()["output"], 4);
    for runner in [here, there] {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_say_whether_users_should_come_here() {
    let world = World::new().await;
    let [a, b] = world.two().await;
    for runner in [&a, &b] {
        nodes::until("it is ready", || runner.node.ownership().status().borrow().ready).await;
        assert_eq!(runner.http.get("/livez").await.status, 200);
        assert_eq!(runner.http.get("/readyz").await.status, 200);
        assert_eq!(runner.http.send(Method::HEAD, "/readyz", &[], "").await.status, 200);
    }
    a.node.ownership().drain();
    nodes::until("it drains", || a.node.ownership().is_draining()).await;
    assert_eq!(a.http.get("/readyz").await.status, 503);
    assert_eq!(a.http.get("/livez").await.status, 200);
    // It still answers for everybody else, and sends them to others.
    let path = format!("/v1/entities/shelf/{}/restock", b.shelf_here());
    let answer = a.http.post(&path, json!({ "count": 2 })).await;
    assert_eq!((answer.json(), answer.header("connection")), (json!({ "stock": 2 }), "close"));
    assert_eq!(b.http.get("/readyz").await.header("connection"), "");
    for runner in [a, b] {
        runner.shutdown().await;
    }
}
