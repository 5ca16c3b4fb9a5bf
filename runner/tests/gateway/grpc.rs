//! The same over gRPC, with the generated client.

use std::sync::atomic::Ordering;

use cleat_proto::gateway::v1::dead_letters_client::DeadLettersClient;
use cleat_proto::gateway::v1::entities_client::EntitiesClient;
use cleat_proto::gateway::v1::request_state::State;
use cleat_proto::gateway::v1::{
    CallRequest, DeadLetterRequest, Format, InterruptRequest, ListDeadLettersRequest, NotifyRequest,
    RequestQuery, StreamRequest,
};
use cleat_runner::message::codec;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::client::Http;
use crate::world::{Runner, World};

pub async fn channel(http: &Http) -> Channel {
    Channel::from_shared(format!("http://{}", http.address)).unwrap().connect().await.unwrap()
}

pub fn reason(status: &Status) -> (Code, &str) {
    (status.code(), status.metadata().get("cleat-reason").map_or("", |reason| reason.to_str().unwrap()))
}

fn ask(id: &str, method: &str, input: &Value) -> CallRequest {
    CallRequest {
        r#type: "shelf".to_owned(),
        id: id.to_owned(),
        method: method.to_owned(),
        input: input.to_string().into(),
        ..CallRequest::default()
    }
}

fn read(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap()
}

async fn client(runner: &Runner) -> EntitiesClient<Channel> {
    EntitiesClient::new(channel(&runner.http).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_are_called_on_the_same_port_in_json_or_messagepack() {
    let world = World::new().await;
    let runners = world.two().await;
    let id = runners[0].shelf_here();
    for (runner, stock) in runners.iter().zip([2, 4]) {
        let mut client = client(runner).await;
        let reply = client.call(ask(&id, "restock", &json!({ "count": 2 }))).await.unwrap().into_inner();
        assert_eq!(read(&reply.output), json!({ "stock": stock }));
        let packed = CallRequest {
            format: Format::MessagePack.into(),
            input: codec::encode(&json!({ "deep": [1, null] })).unwrap().into(),
            ..ask(&id, "echo", &json!(null))
        };
        let reply = client.call(packed.clone()).await.unwrap().into_inner();
        assert_eq!(reply.output, packed.input);
        // No input is null, in both forms.
        for format in [Format::Json, Format::MessagePack] {
            let empty = CallRequest { format: format.into(), input: Default::default(), ..packed.clone() };
            let reply = client.call(empty).await.unwrap().into_inner();
            let expected = if format == Format::Json { b"null".to_vec() } else { vec![0xc0] };
            assert_eq!(reply.output, expected);
        }
    }
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_have_the_same_reasons() {
    let world = World::new().await;
    let runners = world.two().await;
    let id = runners[0].shelf_here();
    for runner in &runners {
        let mut client = client(runner).await;
        let mut told = async |call: CallRequest| client.call(call).await.unwrap_err();
        let refused = told(ask(&id, "reserve", &json!({ "count": 9 }))).await;
        assert_eq!(reason(&refused), (Code::FailedPrecondition, "OutOfStock"));
        assert_eq!(refused.message(), "only 0 left");
        let details = refused.metadata().get_bin("cleat-details-bin").unwrap().to_bytes().unwrap();
        assert_eq!(read(&details), json!({ "left": 0 }));
        let cases = [
            (ask(&id, "burn", &json!(1)), Code::NotFound, "UnknownMethod"),
            (
                CallRequest { r#type: "drawer".to_owned(), ..ask(&id, "get", &json!(1)) },
                Code::NotFound,
                "UnknownType",
            ),
            (ask(&id, "hidden", &json!(1)), Code::PermissionDenied, "NotPermitted"),
            (ask(&id, "restock", &json!("x")), Code::InvalidArgument, "Malformed"),
            (ask("", "get", &json!(1)), Code::InvalidArgument, "InvalidAddress"),
            (ask(&id, "fragile", &json!(1)), Code::Internal, "RetriesExhausted"),
            (
                CallRequest { input: "{".into(), ..ask(&id, "echo", &json!(1)) },
                Code::InvalidArgument,
                "InvalidJson",
            ),
            (
                CallRequest {
                    input: vec![0xc1].into(),
                    format: Format::MessagePack.into(),
                    ..ask(&id, "echo", &json!(1))
                },
                Code::InvalidArgument,
                "Malformed",
            ),
            (
                CallRequest { format: 7, ..ask(&id, "echo", &json!(1)) },
                Code::InvalidArgument,
                "InvalidParameter",
            ),
        ];
        for (call, code, word) in cases {
            assert_eq!(reason(&told(call).await), (code, word));
        }
        let keyed = |count: i64| CallRequest {
            idempotency_key: "k".to_owned(),
            ..ask(&id, "restock", &json!({ "count": count }))
        };
        client.call(keyed(0)).await.unwrap();
        let reused = client.call(keyed(1)).await.unwrap_err();
        assert_eq!(reason(&reused), (Code::AlreadyExists, "KeyReused"));
    }
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_started_waited_for_and_stopped() {
    let world = World::new().await;
    let runners = world.two().await;
    let mut client = client(&runners[1]).await;
    let call = Some(ask(&runners[0].shelf_here(), "hold", &json!(3)));
    let notify = NotifyRequest { call, ..NotifyRequest::default() };
    let id = client.notify(notify.clone()).await.unwrap().into_inner().request;
    world.waiting(1).await;
    let query =
        |wait: &str| RequestQuery { request: id.clone(), wait: wait.to_owned(), ..RequestQuery::default() };
    let state = client.request(query("")).await.unwrap().into_inner();
    assert_eq!(state.state(), State::Pending);
    world.go_on(1);
    let state = client.request(query("50s")).await.unwrap().into_inner();
    assert_eq!((state.state(), state.output.as_ref()), (State::Completed, b"3".as_slice()));
    // One whose time has not come is stopped.
    let later = NotifyRequest { after: "24h".to_owned(), ..notify.clone() };
    let id = client.notify(later).await.unwrap().into_inner().request;
    client.interrupt(InterruptRequest { request: id.clone() }).await.unwrap();
    let query = RequestQuery { request: id, wait: "50s".to_owned(), ..RequestQuery::default() };
    let state = client.request(query).await.unwrap().into_inner();
    assert_eq!((state.state(), state.failure.unwrap().reason.as_str()), (State::Failed, "Interrupted"));
    let unknown =
        RequestQuery { request: "default-0000-0000000000000001".to_owned(), ..RequestQuery::default() };
    assert_eq!(reason(&client.request(unknown).await.unwrap_err()), (Code::NotFound, "NoSuchRequest"));
    let wrong = NotifyRequest { at: "noon".to_owned(), ..notify };
    assert_eq!(reason(&client.notify(wrong).await.unwrap_err()), (Code::InvalidArgument, "InvalidParameter"));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_read_and_gone_on_with() {
    let world = World::new().await;
    let runners = world.two().await;
    let id = runners[0].shelf_here();
    let stream = |method: &str, to: i64| StreamRequest {
        call: Some(ask(&id, method, &json!(to))),
        ..StreamRequest::default()
    };
    let mut here = client(&runners[1]).await;
    let mut items = here.stream(stream("list", 5)).await.unwrap().into_inner();
    let mut resume = String::new();
    for number in 0..3 {
        let item = items.message().await.unwrap().unwrap();
        assert_eq!(read(&item.item), number);
        resume = item.resume;
    }
    world.waiting(1).await;
    drop(items);
    world.go_on(1);
    let mut there = client(&runners[0]).await;
    let resumed = StreamRequest { resume, ..StreamRequest::default() };
    let mut items = there.stream(resumed).await.unwrap().into_inner();
    for number in 3..5 {
        assert_eq!(read(&items.message().await.unwrap().unwrap().item), number);
    }
    assert!(items.message().await.unwrap().is_none());
    let mut items = here.stream(stream("take", 3)).await.unwrap().into_inner();
    assert!(items.message().await.unwrap().unwrap().resume.is_empty());
    items.message().await.unwrap().unwrap();
    assert_eq!(reason(&items.message().await.unwrap_err()), (Code::FailedPrecondition, "OutOfStock"));
    let not_one = here.stream(stream("echo", 3)).await.unwrap_err();
    assert_eq!(reason(&not_one), (Code::InvalidArgument, "NotStreaming"));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_seen_to() {
    let world = World::new().await;
    let runner = world.one().await;
    let mut entities = client(&runner).await;
    for number in 0..3 {
        entities.call(ask("apples", "fragile", &json!(number))).await.unwrap_err();
    }
    let mut letters = DeadLettersClient::new(channel(&runner.http).await);
    let page = |from: &str| ListDeadLettersRequest { limit: 2, r#continue: from.to_owned() };
    let first = letters.list(page("")).await.unwrap().into_inner();
    assert_eq!((first.dead_letters.len(), first.dead_letters[0].input.as_ref()), (2, b"2".as_slice()));
    let second = letters.list(page(&first.r#continue)).await.unwrap().into_inner();
    assert_eq!((second.dead_letters.len(), second.r#continue.as_str()), (1, ""));
    let letter = DeadLetterRequest { id: second.dead_letters[0].id.clone() };
    assert_eq!(letters.get(letter.clone()).await.unwrap().into_inner(), second.dead_letters[0]);
    world.shelf.whole.store(true, Ordering::SeqCst);
    letters.replay(letter.clone()).await.unwrap();
    let query =
        RequestQuery { request: letter.id.clone(), wait: "50s".to_owned(), ..RequestQuery::default() };
    assert_eq!(entities.request(query).await.unwrap().into_inner().output, "0");
    assert_eq!(reason(&letters.get(letter).await.unwrap_err()), (Code::NotFound, "NoSuchDeadLetter"));
    let dropped = DeadLetterRequest { id: first.dead_letters[0].id.clone() };
    letters.drop(dropped.clone()).await.unwrap();
    assert_eq!(reason(&letters.drop(dropped).await.unwrap_err()), (Code::NotFound, "NoSuchDeadLetter"));
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_is_refused_as_over_http() {
    let world = World::new().await;
    let options = cleat_runner::gateway::Options { body: 1000, requests: 1, ..Default::default() };
    let runner = world.one_with(options).await;
    let mut client = client(&runner).await;
    let large = ask("apples", "echo", &json!("x".repeat(100_000)));
    assert_eq!(client.call(large).await.unwrap_err().code(), Code::OutOfRange);
    let holds = tokio::spawn({
        let mut client = client.clone();
        async move { client.call(ask("apples", "hold", &json!(1))).await }
    });
    world.waiting(1).await;
    let refused = client.call(ask("apples", "get", &json!(null))).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::ResourceExhausted, "TooManyRequests"));
    world.go_on(1);
    assert_eq!(holds.await.unwrap().unwrap().into_inner().output, "1");
    runner.shutdown().await;
}
