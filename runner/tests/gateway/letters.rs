//! Messages that failed too often.

use std::sync::atomic::Ordering;

use http::Method;
use serde_json::{Value, json};

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_page_by_page_replayed_and_dropped_from_any_runner() {
    let world = World::new().await;
    let runners = world.two().await;
    let mut died = Vec::new();
    for (number, owner) in [0, 1, 0, 1, 0].into_iter().enumerate() {
        let path = format!("/v1/entities/shelf/{}/fragile", runners[owner].shelf_here());
        let reply = runners[0].http.post_with(&path, &[("prefer", "respond-async")], json!(number)).await;
        let location = reply.header("location").to_owned();
        let ended = runners[1].http.get(&format!("{location}?wait=50s")).await.json();
        assert_eq!(ended["problem"]["reason"], "RetriesExhausted");
        died.push(reply.json()["request"].as_str().unwrap().to_owned());
    }
    // Newest first, two at a time.
    let mut listed = Vec::new();
    let mut next = String::new();
    loop {
        let page = runners[1].http.get(&format!("/v1/dead-letters?limit=2&continue={next}")).await.json();
        let letters = page["deadLetters"].as_array().unwrap().clone();
        assert!(letters.len() <= 2);
        listed.extend(letters);
        match page["continue"].as_str() {
            Some(place) => next = place.to_owned(),
            None => break,
        }
    }
    let ids: Vec<_> = listed.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, died.iter().rev().cloned().collect::<Vec<_>>());
    let (path, first) = (format!("/v1/dead-letters/{}", died[0]), &listed[4]);
    assert_eq!(runners[0].http.get(&path).await.json(), *first);
    assert_eq!(
        (&first["type"], &first["method"], &first["input"]),
        (&json!("shelf"), &json!("fragile"), &json!(0))
    );
    assert_eq!(first["attempts"], 1);
    assert!(first["error"].as_str().unwrap().contains("it broke"), "{first}");
    chrono::DateTime::parse_from_rfc3339(first["died"].as_str().unwrap()).unwrap();
    // Only those that are asked for, in pages as well.
    for (query, expected) in
        [("type=shelf", 5), ("type=other", 0), ("reason=it%20broke", 5), ("type=shelf&reason=unrelated", 0)]
    {
        let page = runners[1].http.get(&format!("/v1/dead-letters?{query}")).await.json();
        assert_eq!(page["deadLetters"].as_array().unwrap().len(), expected, "{query}");
        assert_eq!(page["continue"], Value::Null, "{query}");
    }
    let page = runners[1].http.get("/v1/dead-letters?type=shelf&limit=2").await.json();
    assert_eq!(page["continue"].as_str(), Some(died[3].as_str()));
    // What is mended is tried again, from either runner.
    world.shelf.whole.store(true, Ordering::SeqCst);
    for (number, runner) in runners.iter().enumerate() {
        let path = format!("/v1/dead-letters/{}/replay", died[number]);
        let reply = runner.http.send(Method::POST, &path, &[], "").await;
        assert_eq!(reply.status, 202);
        let location = reply.header("location").to_owned();
        let ended = runner.http.get(&format!("{location}?wait=50s")).await.json();
        assert_eq!(ended["output"], number);
        assert_eq!(runner.http.send(Method::POST, &path, &[], "").await.problem().1, "NoSuchDeadLetter");
    }
    let path = format!("/v1/dead-letters/{}", died[2]);
    assert_eq!(runners[1].http.delete(&path).await.status, 204);
    assert_eq!(runners[1].http.delete(&path).await.problem(), (404, "NoSuchDeadLetter".to_owned()));
    assert_eq!(runners[0].http.get(&path).await.problem(), (404, "NoSuchDeadLetter".to_owned()));
    let left = runners[0].http.get("/v1/dead-letters").await.json();
    assert_eq!(left["deadLetters"].as_array().unwrap().len(), 2);
    assert_eq!(left["continue"], Value::Null);
    for runner in runners {
        runner.shutdown().await;
    }
}
