//! The description of what can be asked follows what is served.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::place::{Place, Runner, patiently};

const SHELF: &str = "
state: {initial: {stock: 0}}
methods:
- name: restock
  delivery: persisted
  input: {schema: {type: object, required: [count], properties: {count: {type: integer}}}}
  output: {schema: {type: integer}}
  cel: {set: {stock: '${state.stock + input.count}'}, output: '${state.stock}'}
- {name: hidden, visibility: private, cel: {}}";
const ORDER: &str = "input: {schema: {type: object, required: [item]}}\nsteps: [{name: rest, sleep: 1ms}]\noutput: '${input.item}'";

async fn document(place: &Place, runner: &Runner) -> Value {
    let (status, document) = place.ask(runner, Method::GET, "/openapi.json", &[], None).await.unwrap();
    assert_eq!(status, 200);
    check(&document);
    document
}

/// That it is an OpenAPI document, as far as that can be told without its schema: versions, operations, parameters, references, schemas.
fn check(document: &Value) {
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    let mut ids = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with('/'), "{path}");
        for (verb, operation) in operations.as_object().unwrap() {
            assert!(["get", "post", "delete", "put", "patch"].contains(&verb.as_str()), "{verb} {path}");
            if let Some(id) = operation["operationId"].as_str() {
                assert!(ids.insert(id.to_owned()), "{id} twice");
            }
            let empty = Vec::new();
            let parameters = operation["parameters"].as_array().unwrap_or(&empty);
            let mut named = BTreeSet::new();
            for parameter in parameters {
                let place = parameter["in"].as_str().unwrap();
                assert!(["path", "query", "header"].contains(&place), "{parameter}");
                assert!(place != "path" || parameter["required"] == true, "{parameter}");
                assert!(parameter["schema"].is_object(), "{parameter}");
                assert!(named.insert((place, parameter["name"].as_str().unwrap())), "{parameter} twice");
            }
            let wanted: BTreeSet<_> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            let given: BTreeSet<_> =
                named.iter().filter(|(place, _)| *place == "path").map(|(_, name)| *name).collect();
            assert_eq!(wanted, given, "{path}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(!responses.is_empty());
            for (status, response) in responses {
                let known = status == "default"
                    || (status.len() == 3 && status.starts_with(|digit: char| ('1'..='5').contains(&digit)));
                assert!(known, "{status}");
                assert!(response["description"].is_string() || response["$ref"].is_string(), "{response}");
            }
        }
    }
    schemas(document, document);
}

/// Each reference leads somewhere, and each schema is one.
fn schemas(document: &Value, part: &Value) {
    match part {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
            }
            if let Some(schema) = fields.get("schema").filter(|schema| !schema.to_string().contains("$ref")) {
                jsonschema::meta::validate(schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
            }
            fields.values().for_each(|field| schemas(document, field));
        }
        Value::Array(items) => items.iter().for_each(|item| schemas(document, item)),
        _ => {}
    }
}

fn input(document: &Value) -> &Value {
    let restock = &document["paths"]["/v1/entities/shelf/{id}/restock"]["post"];
    &restock["requestBody"]["content"]["application/json"]["schema"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_has_the_schemas_of_what_is_served_and_changes_with_them() {
    let place = Place::new().await;
    place.apply("EntityType", "shelf", SHELF).await;
    place.apply("WorkflowType", "order", ORDER).await;
    let runner = place.start("a").await;
    let (status, root) = place.ask(&runner, Method::GET, "/", &[], None).await.unwrap();
    assert_eq!((status.as_u16(), root), (200, json!({ "openapi": "/openapi.json" })));
    let served = patiently("both are served", async || {
        let document = document(&place, &runner).await;
        (input(&document).is_object() && document["paths"]["/v1/workflows/order"].is_object())
            .then_some(document)
    })
    .await;
    assert_eq!(input(&served)["required"], json!(["count"]));
    let restock = &served["paths"]["/v1/entities/shelf/{id}/restock"]["post"];
    assert_eq!(
        restock["responses"]["200"]["content"]["application/json"]["schema"],
        json!({ "type": "integer" })
    );
    let order = &served["paths"]["/v1/workflows/order"]["post"]["requestBody"]["content"]["application/json"];
    assert_eq!(order["schema"]["properties"]["input"]["required"], json!(["item"]));
    assert!(served["paths"].get("/v1/entities/shelf/{id}/hidden").is_none(), "what is private is not shown");

    place
        .apply(
            "EntityType",
            "shelf",
            &SHELF.replace("{count: {type: integer}}", "{count: {type: integer, minimum: 1}}"),
        )
        .await;
    patiently("it changes with the definition", async || {
        let document = document(&place, &runner).await;
        (input(&document)["properties"]["count"]["minimum"] == 1).then_some(())
    })
    .await;
    // Of what is wrong now, the last good definition is served and described.
    let wrong =
        SHELF.replace("required: [count]", "required: [size]").replace("state.stock + input.count", "nobody");
    place.apply("EntityType", "shelf", &wrong).await;
    place.apply("EntityType", "late", "methods: [{name: say, delivery: volatile, cel: {output: one}}]").await;
    let after = patiently("what came after it is served", async || {
        let document = document(&place, &runner).await;
        document["paths"].get("/v1/entities/late/{id}/say").is_some().then_some(document)
    })
    .await;
    assert_eq!(input(&after)["required"], json!(["count"]));
    runner.kill().await;
}
