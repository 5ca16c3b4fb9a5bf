//! Services that are down, slow, or say too much.

use std::time::Duration;

use cleat_runner::egress::{Error, Limits, Options};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::service::{Service, answer, egress, options, request};

#[tokio::test]
async fn nobody_there_is_no_connection() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let error = egress(options()).send(request(&format!("http://{gone}/"))).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("NoConnection", true));
    let error = egress(options()).send(request("http://no-such-host.invalid/")).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("NoAddress", true));
}

#[tokio::test]
async fn a_silent_service_is_waited_for_only_so_long() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut slow = request(&format!("http://{}/", listener.local_addr().unwrap()));
    slow.timeout = Duration::from_millis(200);
    let error = egress(options()).send(slow).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_is_said_to_have() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 16];
            let _ = stream.read(&mut some).await;
        }
    });
    let error = egress(options()).send(request(&format!("http://{address}/"))).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("ConnectionBroken", true));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let service = Service::start(|_| answer(200, vec![b'x'; 4096]), None).await;
    let egress = egress(Options { answer_limit: 4095, ..options() });
    let error = egress.send(request(&service.url())).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 4095, .. }), "{error}");
}

#[tokio::test]
async fn an_endpoint_that_fails_again_and_again_is_left_alone_and_comes_back() {
    let service = Service::start(|number| answer(if number < 3 { 500 } else { 200 }, ""), None).await;
    let breaker = Limits { failures: 3, pause: Duration::from_millis(300) };
    let egress = egress(Options { breaker, ..options() });
    for _ in 0..3 {
        assert_eq!(egress.send(request(&service.url())).await.unwrap().status, 500);
    }
    let error = egress.send(request(&service.url())).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("CircuitOpen", true));
    assert!(error.to_string().contains("left alone"), "{error}");
    assert_eq!(service.asked().len(), 3);
    let again = error.retry_after().unwrap();
    assert!(again <= breaker.pause);
    tokio::time::sleep(again).await;
    assert_eq!(egress.send(request(&service.url())).await.unwrap().status, 200);
    assert_eq!(egress.send(request(&service.url())).await.unwrap().status, 200);
}
