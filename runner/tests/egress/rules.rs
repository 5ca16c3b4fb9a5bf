//! What is asked, and who may not be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use cleat_crds::SecretKey;
use cleat_crds::http::{Auth, Secret, Value};
use cleat_runner::egress::{Egress, Error, Fixed, Options, Resolve, signature};

use super::service::{Service, answer, egress, options, request};

fn key(key: &str) -> SecretKey {
    SecretKey { name: "keys".to_owned(), key: key.to_owned() }
}

#[tokio::test]
async fn requests_share_a_connection_and_carry_what_proves_them() {
    let service = Service::start(|_| answer(200, "yes"), None).await;
    let egress = egress(options());
    for _ in 0..3 {
        let mut request = request(&service.url());
        request.headers.insert("x-plain".to_owned(), Value::Value("plain".to_owned()));
        request.headers.insert("x-secret".to_owned(), Value::SecretRef(key("token")));
        // What belongs to the caller cannot be replaced by a definition.
        request.headers.insert("cleat-fence".to_owned(), Value::Value("forged".to_owned()));
        request.own.insert("cleat-fence", "real".parse().unwrap());
        request.auth = Some(Auth::Hmac(Secret { secret_ref: key("hmac") }));
        let answer = egress.send(request).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.body.as_ref()), (200, b"yes".as_slice()));
    }
    let asked = service.asked();
    assert_eq!((asked.len(), service.connections.load(Ordering::SeqCst)), (3, 1));
    let header = |name: &str| asked[0].headers.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(header("x-plain"), "plain");
    assert_eq!(header("x-secret"), "abc");
    assert_eq!(header("cleat-fence"), "real");
    let signed = header("cleat-signature");
    let time: u64 = signed.strip_prefix("t=").unwrap().split(',').next().unwrap().parse().unwrap();
    assert_eq!(signed, signature(b"s3cret", &asked[0].body, UNIX_EPOCH + Duration::from_secs(time)));
}

#[tokio::test]
async fn a_bearer_token_comes_from_a_secret_and_a_missing_one_is_named() {
    let service = Service::start(|_| answer(200, ""), None).await;
    let egress = egress(options());
    let with = |name: &str| {
        let mut request = request(&service.url());
        request.auth = Some(Auth::Bearer(Secret { secret_ref: key(name) }));
        request
    };
    egress.send(with("token")).await.unwrap();
    assert_eq!(service.asked()[0].headers["authorization"], "Bearer abc");
    let error = egress.send(with("none")).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("NoSecret", true));
    assert!(error.to_string().contains("key none of Secret keys"), "{error}");
    assert_eq!(service.asked().len(), 1);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Service::start(|_| answer(200, "wrong"), None).await;
    let target = elsewhere.url();
    let moved = Service::start(
        move |_| {
            http::Response::builder()
                .status(307)
                .header("location", &target)
                .body(Default::default())
                .unwrap()
        },
        None,
    )
    .await;
    let answer = egress(options()).send(request(&moved.url())).await.unwrap();
    assert_eq!(answer.status, 307);
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn hosts_outside_of_the_allow_list_and_the_machine_itself_are_not_asked() {
    let service = Service::start(|_| answer(200, ""), None).await;
    let listed = Options { allow: "*.shop.svc".parse().unwrap(), ..options() };
    let error = egress(listed).send(request(&service.url())).await.unwrap_err();
    assert!(matches!(error, Error::NotAllowed(_)), "{error}");
    assert_eq!((error.reason(), error.is_transient()), ("EgressRefused", false));

    let strict = egress(Options::default());
    let port = service.address.port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let error = strict.send(request(&format!("http://{host}:{port}/"))).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{host}: {error}");
        assert!(!error.is_transient());
    }
    assert_eq!(service.connections.load(Ordering::SeqCst), 0);
}

/// Says something harmless first, and something else whenever it is asked again.
struct Rebinding {
    asked: AtomicUsize,
    first: SocketAddr,
    then: SocketAddr,
}

#[async_trait]
impl Resolve for Rebinding {
    async fn resolve(&self, _: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        let first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        Ok(vec![if first { self.first } else { self.then }])
    }
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_that_is_connected_to() {
    let good = Service::start(|_| answer(200, "good"), None).await;
    let resolve = Rebinding {
        asked: AtomicUsize::new(0),
        first: good.address,
        then: "169.254.169.254:80".parse().unwrap(),
    };
    let resolve = Arc::new(resolve);
    let egress =
        Egress::resolving(options(), Arc::new(Fixed::default()), Arc::clone(&resolve) as Arc<dyn Resolve>);
    let answer = egress.send(request("http://rebinding.example/")).await.unwrap();
    assert_eq!(answer.body.as_ref(), b"good");
    assert_eq!(resolve.asked.load(Ordering::SeqCst), 1);
    // A new connection asks again, and what it is told is checked again.
    let other = egress.send(request("http://other.example/")).await.unwrap_err();
    assert!(matches!(other, Error::Refused { .. }), "{other}");
}
