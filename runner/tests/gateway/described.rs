//! What can be asked, for machines.

use std::collections::BTreeSet;

use cleat_runner::gateway::{Metrics, Open, Options, Schemas, Server};
use cleat_runner::message::EntityType;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client::Http;
use crate::flow::Order;
use crate::world::World;

struct OfRestock;

impl Schemas for OfRestock {
    fn input(&self, entity_type: &EntityType, method: &str) -> Option<Value> {
        (entity_type.as_str() == "shelf" && method == "restock")
            .then(|| json!({ "type": "object", "required": ["count"] }))
    }

    fn output(&self, _: &EntityType, _: &str) -> Option<Value> {
        None
    }

    fn workflow(&self, name: &str) -> Option<Value> {
        (name == "order").then(|| json!({ "type": "object", "required": ["item"] }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_describes_what_is_registered() {
    let world = World::new().await;
    let runner = world.one().await;
    Order::default().register(&runner.node).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (http, stop) = (Http::new(listener.local_addr().unwrap()), CancellationToken::new());
    let server =
        Server::new(Options::default(), runner.node.clone(), Arc::new(Open), Metrics::hidden().unwrap());
    let serving = tokio::spawn(server.with_schemas(Arc::new(OfRestock)).serve(listener, stop.clone()));
    let root = http.get("/").await;
    assert_eq!(root.json(), json!({ "openapi": "/openapi.json" }));
    assert_eq!(root.header("link"), "</openapi.json>; rel=\"service-desc\"");
    let document = http.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    for path in [
        "/v1/entities/shelf/{id}/restock",
        "/v1/entities/{type}/{id}/{method}",
        "/v1/requests/{id}",
        "/v1/workflows/order",
        "/v1/workflows/{id}/signals/{name}",
        "/v1/dead-letters/{id}/replay",
    ] {
        assert!(paths.contains(path), "{path} in {paths:?}");
    }
    // What is not for users is not shown to them.
    assert!(
        !paths
            .iter()
            .any(|path| path.contains("hidden") || path.contains("cron") || path.contains("workflow:"))
    );
    let restock = &document["paths"]["/v1/entities/shelf/{id}/restock"]["post"];
    let schema = &restock["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(*schema, json!({ "type": "object", "required": ["count"] }));
    assert!(restock["parameters"].to_string().contains("Idempotency-Key"));
    assert!(restock["responses"]["202"].is_object());
    let order = &document["paths"]["/v1/workflows/order"]["post"];
    let input = &order["requestBody"]["content"]["application/json"]["schema"]["properties"]["input"];
    assert_eq!(*input, json!({ "type": "object", "required": ["item"] }));
    let count = &document["paths"]["/v1/entities/shelf/{id}/count"]["post"]["responses"]["200"]["content"];
    assert!(count["text/event-stream"].is_object());
    // Every reference leads somewhere, every operation has a summary or an id, and every part of a path is a parameter.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(reference).is_some(), "{reference}");
    }
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (verb, operation) in operations.as_object().unwrap() {
            let named =
                operation["summary"].as_str().or(operation["operationId"].as_str()).unwrap_or_default();
            assert!(!named.is_empty(), "{verb} {path}");
            for part in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                let parameters = operation["parameters"].as_array().unwrap();
                assert!(
                    parameters.iter().any(|it| it["name"] == part && it["in"] == "path"),
                    "{part} of {path}"
                );
            }
        }
    }
    stop.cancel();
    serving.await.unwrap();
    runner.shutdown().await;
}
