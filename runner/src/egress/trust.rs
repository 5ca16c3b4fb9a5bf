//! Whose certificates are believed.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// What speaks TLS and believes the certificates of this machine, or only those given (PEM).
pub(super) fn config(certificates: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let roots = match certificates {
        Some(pem) => given(pem)?,
        None => native(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn given(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

fn native() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // One that cannot be read is one that is not believed.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
