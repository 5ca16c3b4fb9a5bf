//! Services that are down, slow, or say too much.

use std::time::Duration;

use cleat_runner::egress::{Error, Limits, Metrics, Options};
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
    let breaker = Limits { failures: 3, pause: Duration::from_secs(3600) };
    let patient = egress(Options { breaker, ..options() });
    for _ in 0..3 {
        assert_eq!(patient.send(request(&service.url())).await.unwrap().status, 500);
    }
    let error = patient.send(request(&service.url())).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("CircuitOpen", true));
    assert!(error.to_string().contains("left alone"), "{error}");
    assert_eq!(service.asked().len(), 3);
    assert!(error.retry_after().unwrap() <= breaker.pause);
    // Who is asked elsewhere has nothing to do with it.
    let other = Service::start(|_| answer(200, ""), None).await;
    assert_eq!(patient.send(request(&other.url())).await.unwrap().status, 200);
}

#[tokio::test]
async fn an_endpoint_that_was_left_alone_comes_back_and_is_counted_only_meanwhile() {
    // It fails once more when it is tried.
    let service = Service::start(|number| answer(if number < 4 { 500 } else { 200 }, ""), None).await;
    let registry = prometheus::Registry::new();
    let open = || {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == "cleat_egress_circuits_open").unwrap();
        family.get_metric()[0].get_gauge().get_value()
    };
    let breaker = Limits { failures: 3, pause: Duration::from_millis(1) };
    let metrics = Some(Metrics::new(&registry).unwrap());
    let egress = egress(Options { breaker, metrics, ..options() });
    let mut counted = Vec::new();
    let comes_back = async {
        loop {
            let answer = egress.send(request(&service.url())).await;
            counted.push((service.asked().len(), open()));
            match answer {
                Ok(answer) if answer.status == 200 => return,
                Ok(answer) => assert_eq!(answer.status, 500),
                Err(error) => {
                    assert_eq!(error.reason(), "CircuitOpen");
                    tokio::time::sleep(error.retry_after().unwrap()).await;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), comes_back).await.unwrap();
    // After two failures it is asked as before, after three and a trial that failed it is left alone, then all is well.
    for (asked, open) in counted {
        assert_eq!(open, if (3..=4).contains(&asked) { 1.0 } else { 0.0 }, "asked {asked} times");
    }
    assert_eq!(egress.send(request(&service.url())).await.unwrap().status, 200);
    assert_eq!((service.asked().len(), open()), (6, 0.0));
}
