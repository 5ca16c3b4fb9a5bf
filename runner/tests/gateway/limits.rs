//! How much is taken, and from whom.

use std::time::Duration;

use cleat_proto::gateway::v1::CallRequest;
use cleat_proto::gateway::v1::entities_client::EntitiesClient;
use cleat_runner::gateway::Options;
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use crate::grpc::{channel, reason};
use crate::nodes::PATIENCE;
use crate::world::{World, short};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_not_taken() {
    let world = World::new().await;
    let runner = world.one_with(Options { body: 1000, ..Options::default() }).await;
    let path = "/v1/entities/shelf/apples/echo";
    let text = |length: usize| json!("x".repeat(length));
    assert_eq!(runner.http.post(path, text(998)).await.status, 200);
    assert_eq!(runner.http.post(path, text(999)).await.problem(), (413, "BodyTooLarge".to_owned()));
    // One that does not say how long it is.
    let mut stream = TcpStream::connect(runner.http.address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(format!("800\r\n{}\r\n", "1".repeat(0x800)).as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_when_too_much_is_going_on_is_told_to_come_back() {
    let world = World::new().await;
    let runner = world.one_with(Options { requests: 2, ..Options::default() }).await;
    let calls: Vec<_> = (0..2)
        .map(|number| {
            let http = runner.http.clone();
            tokio::spawn(async move { http.post("/v1/entities/shelf/apples/hold", json!(number)).await })
        })
        .collect();
    world.waiting(2).await;
    let refused = runner.http.post("/v1/entities/shelf/apples/get", json!(null)).await;
    assert_eq!(refused.problem(), (429, "TooManyRequests".to_owned()));
    assert_eq!(refused.header("retry-after"), "1");
    // Probes are answered all the same.
    assert_eq!(runner.http.get("/livez").await.status, 200);
    world.go_on(2);
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().json(), json!(number));
    }
    // A stream counts until it has been read, and whoever goes away counts no longer.
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(runner.http.events(Method::POST, "/v1/entities/shelf/apples/list", &[], json!(9)).await);
    }
    world.waiting(2).await;
    assert_eq!(runner.http.get("/v1/dead-letters").await.problem().0, 429);
    drop(streams);
    let again = async {
        while runner.http.get("/v1/dead-letters").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    world.go_on(2);
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_when_a_mailbox_is_full_is_told_to_come_back() {
    let world = World::new().await;
    let runners = world.two().await;
    // Equal ids of several types sit together.
    let path = |method: &str| format!("/v1/entities/counter/{}/{method}", runners[0].shelf_here());
    let later = [("prefer", "respond-async")];
    let held = runners[1].http.post_with(&path("hold"), &later, json!(0)).await;
    assert_eq!(held.status, 202);
    world.waiting(1).await;
    for (number, runner) in runners.iter().enumerate() {
        assert_eq!(runner.http.post_with(&path("hold"), &later, json!(number)).await.status, 202);
    }
    // The owner and another runner say the same, in whatever way they are asked, for whatever method.
    for runner in &runners {
        for (method, headers) in [("hold", &later[..]), ("hold", &[]), ("look", &[])] {
            let refused = runner.http.post_with(&path(method), headers, json!(7)).await;
            assert_eq!(refused.problem(), (429, "MailboxFull".to_owned()), "{method}");
            assert_eq!(refused.header("retry-after"), "1");
        }
        let mut client = EntitiesClient::new(channel(&runner.http).await);
        let request = CallRequest {
            r#type: "counter".to_owned(),
            id: runners[0].shelf_here(),
            method: "hold".to_owned(),
            input: "7".into(),
            ..CallRequest::default()
        };
        let refused = client.call(request).await.unwrap_err();
        assert_eq!(reason(&refused), (Code::ResourceExhausted, "MailboxFull"));
        assert_eq!(refused.metadata().get("cleat-retry-after").unwrap(), "1");
        // What is for later does not wait in the mailbox, and others have room.
        assert_eq!(runner.http.post(&format!("{}?after=1h", path("hold")), json!(8)).await.status, 202);
        assert_eq!(runner.http.post("/v1/entities/counter/other/look", json!(null)).await.status, 200);
    }
    world.go_on(1);
    world.waiting(1).await;
    assert_eq!(runners[1].http.post_with(&path("hold"), &later, json!(9)).await.status, 202, "there is room");
    world.go_on(3);
    world.waiting(2).await;
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_grpc_too() {
    let world = World::new().await;
    let runner = world.one_with(Options { requests: 1, ..Options::default() }).await;
    let http = runner.http.clone();
    let call = tokio::spawn(async move { http.post("/v1/entities/shelf/apples/hold", json!(1)).await });
    world.waiting(1).await;
    let mut client = EntitiesClient::new(channel(&runner.http).await);
    let refused = client.call(CallRequest::default()).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::ResourceExhausted, "TooManyRequests"));
    assert_eq!(refused.metadata().get("cleat-retry-after").unwrap(), "1");
    world.go_on(1);
    assert_eq!(call.await.unwrap().json(), json!(1));
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_slow_is_not_waited_for() {
    let world = World::new().await;
    let runner = world.one_with(short(Duration::from_secs(30))).await;
    let connect = async |said: &str| {
        let mut stream = TcpStream::connect(runner.http.address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        // A connection that is cut off while more is sent may end with an error.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await.unwrap();
        String::from_utf8(heard).unwrap()
    };
    // Nothing, half of what HTTP/2 begins with, half of a head.
    for said in ["", "PRI * HTTP/2.0\r\n", "POST /v1/entities/shelf/a/get HTTP/1.1\r\nhost: "] {
        let heard = connect(said).await;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 408"), "{said:?}: {heard}");
    }
    // A body that does not come.
    let heard = connect(
        "POST /v1/entities/shelf/a/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n[1",
    )
    .await;
    assert!(heard.starts_with("HTTP/1.1 408") && heard.contains("SlowBody"), "{heard}");
    // Headers without end.
    let heard =
        connect(&format!("GET /livez HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n", "x".repeat(40_000))).await;
    assert!(heard.starts_with("HTTP/1.1 431"), "{heard}");
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_more_connections_than_allowed() {
    let world = World::new().await;
    let runner = world.one_with(Options { connections: 1, ..Options::default() }).await;
    let mut first = TcpStream::connect(runner.http.address).await.unwrap();
    let mut second = TcpStream::connect(runner.http.address).await.unwrap();
    let ask = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut answer = [0; 12];
    first.write_all(ask).await.unwrap();
    tokio::time::timeout(PATIENCE, first.read_exact(&mut answer)).await.unwrap().unwrap();
    second.write_all(ask).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(300), second.read_exact(&mut answer)).await;
    assert!(early.is_err(), "the second one waits");
    drop(first);
    tokio::time::timeout(PATIENCE, second.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    drop(second);
    runner.shutdown().await;
}
