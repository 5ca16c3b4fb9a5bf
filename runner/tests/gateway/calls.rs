//! Calls and notifications.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use http::Method;
use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_runner_answers_for_any_entity() {
    let world = World::new().await;
    let runners = world.two().await;
    for owner in &runners {
        let path = format!("/v1/entities/shelf/{}", owner.shelf_here());
        for (asked, stock) in runners.iter().zip([3, 6]) {
            let reply = asked.http.post(&format!("{path}/restock"), json!({ "count": 3 })).await;
            assert_eq!((reply.status.as_u16(), reply.json()), (200, json!({ "stock": stock })));
            assert_eq!(reply.header("content-type"), "application/json");
            // No body is null, and needs no content type.
            let reply = asked.http.send(Method::POST, &format!("{path}/get"), &[], "").await;
            assert_eq!(reply.json(), json!({ "stock": stock }));
        }
    }
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_arrives_as_it_was_said_whatever_the_id() {
    let world = World::new().await;
    let runner = world.one().await;
    let said = json!({ "whole": 3, "part": 3.0, "big": u64::MAX, "below": i64::MIN, "list": [null, true, "ä\n"], "deep": { "": {} } });
    for id in ["apples", "fruit%2Fgreen%20apples", "%C3%A4pfel", "a:b@c", "%25"] {
        let reply = runner.http.post(&format!("/v1/entities/shelf/{id}/echo"), said.clone()).await;
        assert_eq!(reply.body, said.to_string(), "{id}");
    }
    // Without a caller that is known, a handler is told of none.
    assert_eq!(runner.http.post("/v1/entities/shelf/x/who", json!(null)).await.json(), json!(null));
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_makes_two_calls_one() {
    let world = World::new().await;
    let runners = world.two().await;
    let path = format!("/v1/entities/shelf/{}", runners[0].shelf_here());
    let keyed = [("idempotency-key", "order-1")];
    for runner in &runners {
        // The order of fields does not matter.
        let reply = runner.http.post_with(&format!("{path}/restock"), &keyed, json!({ "count": 5 })).await;
        assert_eq!(reply.json(), json!({ "stock": 5 }));
    }
    for runner in &runners {
        let reply = runner.http.post_with(&format!("{path}/restock"), &keyed, json!({ "count": 6 })).await;
        assert_eq!(reply.problem(), (409, "KeyReused".to_owned()));
    }
    assert_eq!(runners[1].http.post(&format!("{path}/get"), json!(null)).await.json(), json!({ "stock": 5 }));
    // What stores nothing cannot remember a key.
    let reply = runners[0].http.post_with(&format!("{path}/get"), &keyed, json!(null)).await;
    assert_eq!(reply.problem(), (400, "NotPersisted".to_owned()));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_stored_now_and_asked_for_later() {
    let world = World::new().await;
    let runners = world.two().await;
    let path = format!("/v1/entities/shelf/{}/hold", runners[0].shelf_here());
    let later = [("prefer", "respond-async"), ("idempotency-key", "k")];
    let reply = runners[1].http.post_with(&path, &later, json!(7)).await;
    assert_eq!(reply.status, 202);
    assert_eq!(reply.header("preference-applied"), "respond-async");
    let id = reply.json()["request"].as_str().unwrap().to_owned();
    let location = format!("/v1/requests/{id}");
    assert_eq!(reply.header("location"), location);
    // The same key is the same request.
    let again = runners[0].http.post_with(&path, &later, json!(7)).await;
    assert_eq!(again.json()["request"], id);
    world.waiting(1).await;
    let state = runners[1].http.get(&location).await;
    assert_eq!(state.json(), json!({ "request": id, "state": "Pending" }));
    let waits = tokio::spawn({
        let (http, location) = (runners[1].http.clone(), format!("{location}?wait=50s"));
        async move { http.get(&location).await }
    });
    world.go_on(1);
    let ended = json!({ "request": id, "state": "Completed", "output": 7 });
    assert_eq!(waits.await.unwrap().json(), ended);
    assert_eq!(runners[0].http.get(&location).await.json(), ended);
    assert_eq!(world.shelf.held.load(Ordering::SeqCst), 1);
    // The reply of what is not stored is not kept.
    let volatile = path.replace("/hold", "/get");
    let reply = runners[0].http.post_with(&volatile, &[("prefer", "respond-async")], json!(null)).await;
    assert_eq!((reply.status.as_u16(), reply.json()), (202, json!({ "request": null })));
    assert!(!reply.headers.contains_key("location"));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_made_at_its_time() {
    let world = World::new().await;
    let runner = world.one().await;
    let due = SystemTime::now() + Duration::from_millis(700);
    let at = chrono::DateTime::<chrono::Utc>::from(due).to_rfc3339();
    let path = format!("/v1/entities/shelf/apples/restock?at={}", at.replace('+', "%2B"));
    let reply = runner.http.post(&path, json!({ "count": 1 })).await;
    assert_eq!(reply.status, 202);
    let location = reply.header("location").to_owned();
    let ended = runner.http.get(&format!("{location}?wait=50s")).await;
    assert_eq!(ended.json()["output"], json!({ "stock": 1 }));
    assert!(SystemTime::now() >= due, "it came before its time");
    // One whose time is far away is stopped.
    let reply = runner.http.post("/v1/entities/shelf/apples/restock?after=24h", json!({ "count": 1 })).await;
    let location = reply.header("location").to_owned();
    assert_eq!(runner.http.get(&location).await.json()["state"], "Pending");
    assert_eq!(runner.http.delete(&location).await.status, 202);
    let ended = runner.http.get(&format!("{location}?wait=50s")).await.json();
    assert_eq!((&ended["state"], &ended["problem"]["reason"]), (&json!("Failed"), &json!("Interrupted")));
    runner.shutdown().await;
}
