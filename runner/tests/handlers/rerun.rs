//! A service is asked again after its runner is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::world::{PATIENCE, Place, World, on_both_stores};

on_both_stores!(the_next_runner_asks_under_the_same_key_with_a_higher_fence);

/// Never answers the first request.
async fn forgetful() -> (String, mpsc::UnboundedReceiver<(String, i64)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (told, asked) = mpsc::unbounded_channel();
    let count = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (told, count) = (told.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                    let (told, count) = (told.clone(), Arc::clone(&count));
                    async move {
                        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
                        let asked = (header("cleat-idempotency-key"), header("cleat-fence").parse().unwrap());
                        request.into_body().collect().await.unwrap();
                        told.send(asked).unwrap();
                        if count.fetch_add(1, Ordering::SeqCst) == 0 {
                            std::future::pending::<()>().await;
                        }
                        let body = json!({"state": {"total": 1}}).to_string();
                        Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(bytes::Bytes::from(
                            body,
                        ))))
                    }
                });
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (url, asked)
}

async fn the_next_runner_asks_under_the_same_key_with_a_higher_fence(place: Place) {
    let (url, mut asked) = forgetful().await;
    let counter = format!(
        r#"
state: {{initial: {{total: 0}}}}
methods:
- {{name: add, http: {{url: "{url}", timeout: 100s}}}}
- {{name: get, delivery: volatile, cel: {{output: "${{state.total}}"}}}}
"#
    );
    let world = World::new(place).await;
    world.serve(&[("counter", &counter)]).await;
    let pending = world.client("counter").call::<Json, Json>("a", "add", &json!(1)).start().await.unwrap();
    let request = pending.id().clone();
    let (first_key, first_fence) = asked.recv().await.unwrap();
    // It stops in the middle of the question.
    let world = world.restart().await;
    world.serve(&[("counter", &counter)]).await;
    let (key, fence) = tokio::time::timeout(PATIENCE, asked.recv()).await.unwrap().unwrap();
    assert_eq!(key, first_key);
    assert_eq!(key, request.to_string());
    assert!(fence > first_fence, "{fence} {first_fence}");
    world.client("counter").pending::<Json, Json>(request).await.unwrap();
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap(), json!(1));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(asked.try_recv().is_err(), "it was asked once too often");
}
