//! What goes wrong, as users are told.

use http::Method;
use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_problem_has_a_status_and_a_reason_from_every_runner() {
    let world = World::new().await;
    let runners = world.two().await;
    let id = runners[0].shelf_here();
    for runner in &runners {
        let http = &runner.http;
        let called = async |path: &str, input| http.post(&format!("/v1/entities/{path}"), input).await;
        let told = async |path: &str, input| called(path, input).await.problem();
        // A handler's considered no, with its own error.
        let refused = called(&format!("shelf/{id}/reserve"), json!({ "count": 3 })).await;
        assert_eq!(refused.problem(), (409, "OutOfStock".to_owned()));
        assert_eq!(refused.json()["detail"], "only 0 left");
        assert_eq!(refused.json()["details"], json!({ "left": 0 }));
        // An input that the handler's types do not read.
        assert_eq!(
            told(&format!("shelf/{id}/restock"), json!({ "counts": 1 })).await,
            (400, "Malformed".to_owned())
        );
        // A handler that gave up.
        assert_eq!(
            told(&format!("shelf/{id}/fragile"), json!(1)).await,
            (500, "RetriesExhausted".to_owned())
        );
        // Nothing there.
        assert_eq!(told(&format!("drawer/{id}/get"), json!(null)).await, (404, "UnknownType".to_owned()));
        assert_eq!(told(&format!("shelf/{id}/burn"), json!(null)).await, (404, "UnknownMethod".to_owned()));
        // Not for users.
        assert_eq!(told(&format!("shelf/{id}/hidden"), json!(1)).await, (403, "NotPermitted".to_owned()));
        assert_eq!(told(&format!("shelf/{id}/count"), json!(1)).await, (400, "Streams".to_owned()));
        assert_eq!(told(&format!("shelf/{}/get", "x".repeat(1025)), json!(null)).await.1, "InvalidAddress");
        assert_eq!(told("shelf//get", json!(null)).await, (400, "InvalidAddress".to_owned()));
        // Requests.
        let unknown = "/v1/requests/default-0000-0000000000000001";
        assert_eq!(http.get(unknown).await.problem(), (404, "NoSuchRequest".to_owned()));
        assert_eq!(http.delete(unknown).await.problem(), (404, "NoSuchRequest".to_owned()));
        assert_eq!(http.get("/v1/requests/7").await.problem(), (400, "InvalidParameter".to_owned()));
        let elsewhere = http.get("/v1/requests/premium-0000-0000000000000001").await;
        assert_eq!(elsewhere.problem().0, 404);
        assert_eq!(http.get(&format!("{unknown}?wait=soon")).await.problem().1, "InvalidParameter");
    }
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_understood_is_said_with_its_place() {
    let world = World::new().await;
    let runner = world.one().await;
    let path = "/v1/entities/shelf/apples/restock";
    let json_type = ("content-type", "application/json");
    let send = async |headers: &[(&str, &str)], body: &'static str| {
        runner.http.send(Method::POST, path, headers, body).await
    };
    let broken = send(&[json_type], "{\"count\": 1,\n}").await;
    assert_eq!(broken.problem(), (400, "InvalidJson".to_owned()));
    assert!(broken.json()["detail"].as_str().unwrap().contains("line 2 column 1"), "{:?}", broken.body);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(send(&form, "count=1").await.problem(), (415, "UnsupportedMediaType".to_owned()));
    assert_eq!(send(&[], "{}").await.problem(), (415, "UnsupportedMediaType".to_owned()));
    assert_eq!(send(&[json_type, ("idempotency-key", "")], "{}").await.problem().1, "InvalidParameter");
    // A page of another site cannot make a browser call us.
    let page = [("sec-fetch-site", "cross-site")];
    assert_eq!(send(&page, "").await.problem(), (403, "CrossSite".to_owned()));
    // Paths and methods.
    assert_eq!(runner.http.get("/v1/entities").await.problem(), (404, "NotFound".to_owned()));
    assert_eq!(runner.http.get("/metrics").await.problem().0, 404);
    let wrong = runner.http.get(path).await;
    assert_eq!((wrong.problem(), wrong.header("allow")), ((405, "MethodNotAllowed".to_owned()), "POST"));
    assert_eq!(runner.http.get("/v1/requests/%ff").await.problem(), (400, "InvalidPath".to_owned()));
    for query in ["at=noon", "after=1d", "at=2026-01-31T08:00:00Z&after=1s"] {
        let reply = runner.http.post(&format!("{path}?{query}"), json!({ "count": 1 })).await;
        assert_eq!(reply.problem(), (400, "InvalidParameter".to_owned()), "{query}");
    }
    let got = runner.http.post("/v1/entities/shelf/apples/get", json!(null)).await;
    assert_eq!(got.json(), json!({ "stock": 0 }), "none of it had an effect");
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_cannot_reach_an_owner_says_when_to_come_back() {
    let world = World::new().await;
    let runner = world.runner("a").await;
    crate::nodes::spread(&[&runner.node]).await;
    // It gives its shards away, and nobody takes them.
    runner.node.ownership().shutdown().await;
    let reply = runner.http.post("/v1/entities/shelf/apples/restock", json!({ "count": 1 })).await;
    assert_eq!(reply.problem(), (503, "NotHere".to_owned()));
    assert_eq!(reply.header("retry-after"), "1");
    runner.shutdown().await;
}
