//! Who a peer is, and how it proves it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};

use crate::shard::Instance;

/// Who a runner is, as its peers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The UID of the cluster that it belongs to.
    pub cluster: Arc<str>,
    /// This start of its process.
    pub instance: Instance,
    /// Its release.
    pub version: Arc<str>,
}

/// What somebody who dials says of itself, to be checked.
#[derive(Clone)]
pub struct Claim {
    /// Who it says it is. The cluster is known to be the right one.
    pub identity: Identity,
    /// What it proves that with; empty if it has nothing.
    pub credential: String,
    /// Where it dials from, if the connection tells.
    pub remote: Option<SocketAddr>,
}

impl fmt::Debug for Claim {
    /// Without the credential, which does not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("identity", &self.identity)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// The claim is not proven. The text is told to the peer: it must hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unproven(pub String);

/// Checks what somebody who dials says of itself.
pub trait Verify: Send + Sync + 'static {
    /// Lets a peer in or not.
    ///
    /// # Errors
    /// [`Unproven`] keeps it out.
    fn verify(&self, claim: &Claim) -> Result<(), Unproven>;
}

/// What a runner proves itself with when it dials. Asked for each connection, so that it can be rotated.
pub trait Present: Send + Sync + 'static {
    /// The credential of now.
    fn credential(&self) -> String;
}

/// A secret that all runners of a cluster share, with room for a rotation: the newest is presented, and the ones before
/// it are accepted until they are dropped.
pub struct SharedToken {
    tokens: RwLock<Vec<String>>,
}

impl SharedToken {
    /// A secret that is the only one.
    pub fn new(token: impl Into<String>) -> Self {
        Self { tokens: RwLock::new(vec![token.into()]) }
    }

    /// Whether somebody who presents this is one of us.
    pub fn accepts(&self, credential: &str) -> bool {
        // Digests are compared instead of the secrets: how long it takes then tells nothing about the secret.
        let given = Sha256::digest(credential.as_bytes());
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.iter().any(|token| !token.is_empty() && Sha256::digest(token.as_bytes()) == given)
    }

    /// Replaces all: the first is presented, each is accepted. Without any, nobody gets in.
    pub fn rotate(&self, tokens: Vec<String>) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }
}

impl Verify for SharedToken {
    fn verify(&self, claim: &Claim) -> Result<(), Unproven> {
        if self.accepts(&claim.credential) {
            Ok(())
        } else {
            Err(Unproven("the token is not one of this cluster".to_owned()))
        }
    }
}

impl Present for SharedToken {
    fn credential(&self) -> String {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).first().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(credential: &str) -> Claim {
        let identity = Identity { cluster: "c".into(), instance: Instance::new("i"), version: "1".into() };
        Claim { identity, credential: credential.to_owned(), remote: None }
    }

    #[test]
    fn a_rotated_token_is_accepted_until_it_is_dropped() {
        let token = SharedToken::new("old");
        assert!(token.verify(&claim("old")).is_ok());
        token.rotate(vec!["new".into(), "old".into()]);
        assert_eq!(token.credential(), "new");
        assert!(token.verify(&claim("old")).is_ok() && token.verify(&claim("new")).is_ok());
        token.rotate(vec!["new".into()]);
        assert!(token.verify(&claim("old")).is_err());
    }

    #[test]
    fn nobody_gets_in_without_a_token() {
        let token = SharedToken::new("");
        assert!(token.verify(&claim("")).is_err());
        token.rotate(Vec::new());
        assert!(token.verify(&claim("")).is_err());
    }

    #[test]
    fn a_claim_does_not_show_its_credential() {
        assert!(!format!("{:?}", claim("secret")).contains("secret"));
    }
}
