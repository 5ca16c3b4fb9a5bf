//! Who may speak for whom: one authority, and what it signs.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::home::Home;

/// An authority whose certificates are files under `etc/`.
pub(crate) struct Authority<'a> {
    home: &'a Home,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    /// Makes `ca.crt` and `ca.key`, and the key that service accounts' tokens are signed with.
    pub(crate) fn create(home: &'a Home) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "cleat-e2e");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        home.write("etc/ca.crt", &params.self_signed(&key)?.pem())?;
        home.write("etc/ca.key", &key.serialize_pem())?;
        let tokens = KeyPair::generate()?;
        home.write("etc/tokens.key", &tokens.serialize_pem())?;
        home.write("etc/tokens.pub", &tokens.public_key_pem())?;
        Ok(Self { home, issuer: Issuer::new(params, key) })
    }

    /// Makes `NAME.crt` and `NAME.key` for a user of a group, who answers at the given names and addresses.
    pub(crate) fn sign(&self, name: &str, user: &str, group: Option<&str>, names: &[&str]) -> Result<()> {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        self.home.write(&format!("etc/{name}.crt"), &params.signed_by(&key, &self.issuer)?.pem())?;
        self.home.write(&format!("etc/{name}.key"), &key.serialize_pem())?;
        Ok(())
    }
}

/// Writes a kubeconfig for whom a certificate speaks for.
pub(crate) fn kubeconfig(home: &Home, file: &str, name: &str, url: &str) -> Result<()> {
    let etc = home.path("etc");
    let etc = etc.display();
    let text = format!(
        "apiVersion: v1
kind: Config
clusters: [{{name: e2e, cluster: {{server: \"{url}\", certificate-authority: \"{etc}/ca.crt\"}}}}]
users: [{{name: {name}, user: {{client-certificate: \"{etc}/{name}.crt\", client-key: \"{etc}/{name}.key\"}}}}]
contexts: [{{name: e2e, context: {{cluster: e2e, user: {name}}}}}]
current-context: e2e
"
    );
    home.write(file, &text).map(drop)
}
