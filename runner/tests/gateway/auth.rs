//! Who is let in: with the embedded API server, and with one that knows several people.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cleat_proto::gateway::v1::RequestQuery;
use cleat_proto::gateway::v1::entities_client::EntitiesClient;
use cleat_runner::gateway::Options;
use cleat_runner::gateway::kubernetes::{self, Kubernetes};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::Code;

use crate::grpc::{channel, reason};
use crate::nodes;
use crate::world::{Runner, World};

/// An API server that knows people by their tokens, and who may do what: `ann create entitytypes/call shelf`.
///
/// The embedded one knows one person only, who may do everything.
struct Reviews {
    rules: BTreeSet<&'static str>,
    asked: Mutex<Vec<String>>,
    tokens: AtomicUsize,
    down: AtomicBool,
    silent: AtomicBool,
}

impl Reviews {
    async fn start(rules: &[&'static str]) -> (Arc<Self>, Client) {
        let rules = rules.iter().copied().collect();
        let reviews = Arc::new(Self {
            rules,
            asked: Mutex::default(),
            tokens: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            silent: AtomicBool::new(false),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn({
            let reviews = Arc::clone(&reviews);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let reviews = Arc::clone(&reviews);
                    let service = service_fn(move |request| Arc::clone(&reviews).answer(request));
                    let serving = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    tokio::spawn(serving);
                }
            }
        });
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        (reviews, client)
    }

    /// As the real one does, for the two that are asked.
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        if self.down.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("down"));
        }
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        assert_eq!(request.method(), Method::POST);
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        let spec = review["spec"].clone();
        review["status"] = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                self.tokens.fetch_add(1, Ordering::SeqCst);
                match spec["token"].as_str().unwrap() {
                    name @ ("ann" | "bob") => {
                        json!({ "authenticated": true, "user": { "username": name, "groups": ["people"] } })
                    }
                    _ => json!({ "user": {}, "error": "invalid bearer token" }),
                }
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let asked = &spec["resourceAttributes"];
                assert_eq!((&asked["group"], &asked["namespace"]), (&json!("cleat.dev"), &json!("shop")));
                assert_eq!(spec["groups"], json!(["people"]));
                let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
                let part =
                    Some(text("subresource")).filter(|part| !part.is_empty()).map(|part| format!("/{part}"));
                let what = format!(
                    "{} {} {}{} {}",
                    spec["user"].as_str().unwrap(),
                    text("verb"),
                    text("resource"),
                    part.unwrap_or_default(),
                    text("name")
                );
                let what = what.trim_end().to_owned();
                let allowed = self.rules.contains(what.as_str());
                self.asked.lock().unwrap().push(what);
                json!({ "allowed": allowed })
            }
            other => panic!("{other}"),
        };
        Ok(Response::builder()
            .status(201)
            .header("content-type", "application/json")
            .body(review.to_string().into())
            .unwrap())
    }
}

async fn runner(world: &World, client: Client, options: kubernetes::Options) -> Runner {
    let guard = Arc::new(Kubernetes::new(client, "shop", options));
    let runner = world.runner_with("a", Options::default(), guard).await;
    nodes::spread(&[&runner.node]).await;
    runner
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_api_server_knows_its_own_token_and_no_other() -> Result<(), Infallible> {
    let server = cleat_apiserver::start(cleat_apiserver::Options::default()).await.unwrap();
    let config = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let world = World::new().await;
    let runner = runner(&world, Client::try_from(config).unwrap(), kubernetes::Options::default()).await;
    let path = "/v1/entities/shelf/apples/who";
    let known = bearer(server.token());
    let reply = runner.http.post_with(path, &[("authorization", &known)], json!(null)).await;
    assert_eq!((reply.status.as_u16(), reply.json()), (200, json!("cleat-admin")));
    for headers in
        [&[][..], &[("authorization", "Bearer stranger")][..], &[("authorization", "Basic eDp5")][..]]
    {
        let reply = runner.http.post_with(path, headers, json!(null)).await;
        assert_eq!(reply.problem(), (401, "Unauthenticated".to_owned()), "{headers:?}");
        assert_eq!(reply.header("www-authenticate"), "Bearer");
    }
    // Nobody has to prove anything to probe.
    assert_eq!(runner.http.get("/livez").await.status, 200);
    runner.shutdown().await;
    server.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_takes_its_verb() {
    let (reviews, client) =
        Reviews::start(&["ann create entitytypes/call shelf", "ann get entitytypes/requests"]).await;
    let world = World::new().await;
    let runner = runner(&world, client, kubernetes::Options::default()).await;
    let (ann, bob) = (bearer("ann"), bearer("bob"));
    let id = "default-0000-0000000000000001";
    let table = [
        (Method::POST, "/v1/entities/shelf/a/get".to_owned(), "create entitytypes/call shelf"),
        (Method::GET, format!("/v1/requests/{id}"), "get entitytypes/requests"),
        (Method::DELETE, format!("/v1/requests/{id}"), "delete entitytypes/requests"),
        (Method::POST, "/v1/workflows/order".to_owned(), "create workflows"),
        (Method::GET, "/v1/workflows".to_owned(), "list workflows"),
        (Method::GET, "/v1/workflows/order:1".to_owned(), "get workflows"),
        (Method::GET, "/v1/workflows/order:1/history".to_owned(), "get workflows"),
        (Method::GET, "/v1/workflows/order:1/result".to_owned(), "get workflows"),
        (Method::POST, "/v1/workflows/order:1/queries/q".to_owned(), "get workflows"),
        (Method::POST, "/v1/workflows/order:1/signals/s".to_owned(), "update workflows"),
        (Method::POST, "/v1/workflows/order:1/cancel".to_owned(), "update workflows"),
        (Method::POST, "/v1/workflows/order:1/reset".to_owned(), "update workflows"),
        (Method::POST, "/v1/workflows/order:1/terminate".to_owned(), "delete workflows"),
        (Method::GET, "/v1/dead-letters".to_owned(), "list entitytypes/deadletters"),
        (Method::GET, format!("/v1/dead-letters/{id}"), "get entitytypes/deadletters"),
        (Method::POST, format!("/v1/dead-letters/{id}/replay"), "update entitytypes/deadletters"),
        (Method::DELETE, format!("/v1/dead-letters/{id}"), "delete entitytypes/deadletters"),
    ];
    for (method, path, verb) in table {
        reviews.asked.lock().unwrap().clear();
        let reply = runner.http.send(method.clone(), &path, &[("authorization", &bob)], "").await;
        assert_eq!(reply.problem(), (403, "Forbidden".to_owned()), "{method} {path}");
        assert!(
            reply.json()["detail"].as_str().unwrap().starts_with("bob may not do this: it takes the verb")
        );
        let asked = reviews.asked.lock().unwrap().clone();
        // What was asked a moment ago is not asked again.
        assert!(asked.is_empty() || asked == [format!("bob {verb}")], "{method} {path}: {asked:?}");
        let reply = runner.http.send(method, &path, &[("authorization", &ann)], "").await;
        let allowed = verb.contains("/call") || verb == "get entitytypes/requests";
        assert_eq!(reply.status != 403, allowed, "{path}: {reply:?}");
    }
    // Everybody who is known may know what can be asked.
    assert_eq!(
        runner.http.send(Method::GET, "/openapi.json", &[("authorization", &bob)], "").await.status,
        200
    );
    assert_eq!(runner.http.get("/openapi.json").await.problem().0, 401);
    // The same over gRPC.
    let mut client = EntitiesClient::new(channel(&runner.http).await);
    let mut query = async |token: Option<&str>| {
        let mut request =
            tonic::Request::new(RequestQuery { request: id.to_owned(), ..RequestQuery::default() });
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", token.parse().unwrap());
        }
        client.request(request).await.unwrap_err()
    };
    assert_eq!(reason(&query(None).await), (Code::Unauthenticated, "Unauthenticated"));
    assert_eq!(reason(&query(Some(&bob)).await), (Code::PermissionDenied, "Forbidden"));
    assert_eq!(reason(&query(Some(&ann)).await), (Code::NotFound, "NoSuchRequest"));
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_counts_for_a_while_also_when_nobody_can_be_asked() {
    let (reviews, client) = Reviews::start(&["ann create entitytypes/call shelf"]).await;
    let world = World::new().await;
    let options = kubernetes::Options {
        allowed: Duration::from_millis(300),
        grace: Duration::from_secs(300),
        ..kubernetes::Options::default()
    };
    let runner = runner(&world, client, options).await;
    let ask = async |token: &str| {
        let authorization = bearer(token);
        let headers = [("authorization", authorization.as_str())];
        runner.http.post_with("/v1/entities/shelf/a/get", &headers, json!(null)).await
    };
    for _ in 0..20 {
        assert_eq!(ask("ann").await.status, 200);
    }
    let asked = reviews.tokens.load(Ordering::SeqCst);
    assert!(asked < 20, "the token was shown {asked} times");
    reviews.down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(ask("ann").await.status, 200, "what was said last counts");
    let nobody = ask("bob").await;
    assert_eq!(nobody.problem(), (503, "AuthenticationUnavailable".to_owned()));
    reviews.down.store(false, Ordering::SeqCst);
    assert_eq!(ask("bob").await.problem(), (403, "Forbidden".to_owned()));
    runner.shutdown().await;
}

/// A call whose caller is known does not wait for an API server that does not answer: only the first notices that it is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_do_not_wait_for_an_api_server_that_is_away() {
    let (reviews, client) = Reviews::start(&["ann create entitytypes/call shelf"]).await;
    let world = World::new().await;
    let options = kubernetes::Options {
        allowed: Duration::from_millis(100),
        grace: Duration::from_secs(300),
        patience: Duration::from_secs(3),
        ..kubernetes::Options::default()
    };
    let runner = runner(&world, client, options.clone()).await;
    let authorization = bearer("ann");
    let headers = [("authorization", authorization.as_str())];
    let ask = || runner.http.post_with("/v1/entities/shelf/a/get", &headers, json!(null));
    assert_eq!(ask().await.status, 200);
    reviews.silent.store(true, Ordering::SeqCst);
    // What was said has run out.
    tokio::time::sleep(options.allowed).await;
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(ask().await.status, 200, "what was said last counts");
    }
    let (took, each) = (begun.elapsed(), options.patience);
    assert!(took < each * 10, "20 calls took {took:?}, and would take {:?} if each waited", each * 40);
    runner.shutdown().await;
}
