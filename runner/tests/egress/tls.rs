//! Services behind TLS.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cleat_crds::SecretKey;
use cleat_crds::http::{Secret, Tls};
use cleat_runner::egress::{Egress, Fixed};
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use super::service::{Service, answer, options, request};

/// A certificate for localhost that signs itself, and what serves it.
fn localhost() -> (String, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (made.cert.pem(), TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn a_given_certificate_is_believed_and_http2_shares_one_connection() {
    let (certificate, acceptor) = localhost();
    let service = Service::start(|_| answer(200, "safe"), Some(acceptor)).await;
    let egress = Egress::new(options(), Arc::new(Fixed::default().with("ca", "ca.crt", certificate)));
    let url = format!("https://localhost:{}/", service.address.port());

    let error = egress.send(request(&url)).await.unwrap_err();
    assert_eq!(error.reason(), "NoConnection");
    assert!(error.explain().contains("certificate"), "{}", error.explain());

    let trusting = || {
        let secret_ref = SecretKey { name: "ca".to_owned(), key: "ca.crt".to_owned() };
        let mut request = request(&url);
        request.tls = Some(Tls { ca: Some(Secret { secret_ref }) });
        request
    };
    egress.send(trusting()).await.unwrap();
    let before = service.connections.load(Ordering::SeqCst);
    let answers = futures::future::join_all((0..8).map(|_| egress.send(trusting()))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().body.as_ref() == b"safe"));
    assert_eq!(service.connections.load(Ordering::SeqCst), before);
    assert!(service.asked().iter().all(|asked| asked.version == http::Version::HTTP_2));
}
