//! What makes two requests one.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::EntityAddress;

/// The digest of a caller's explicit key together with what it is for: entity type, entity id, method and key.
///
/// Cut from SHA-256 to 128 bits: nobody finds two that collide, neither by chance nor on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IdempotencyKey([u8; 16]);

/// The digest of a payload, kept beside the key so that one key with two payloads is noticed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PayloadDigest([u8; 16]);

impl IdempotencyKey {
    /// The digest of a key for one method of one entity.
    ///
    /// # Guarantees
    /// Two different (type, id, method, key) never give the same input to the hash: each part is preceded by its length.
    pub fn new(address: &EntityAddress, method: &str, key: &[u8]) -> Self {
        let parts =
            [address.entity_type.as_str().as_bytes(), address.id.as_str().as_bytes(), method.as_bytes(), key];
        Self(digest(b"cleat.key.1", &parts))
    }

    /// A key as it is stored.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl PayloadDigest {
    /// The digest of a payload.
    pub fn new(payload: &[u8]) -> Self {
        Self(digest(b"cleat.payload.1", &[payload]))
    }

    /// A digest as it is stored.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

fn digest(domain: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(domain);
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let full: [u8; 32] = hash.finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    half
}

fn hexadecimal(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{:032x}", u128::from_be_bytes(*bytes))
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hexadecimal(&self.0, f)
    }
}

impl fmt::Debug for PayloadDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hexadecimal(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_what_they_were_when_requests_were_first_stored_under_them() {
        let address = EntityAddress::new("inventory", "apples").unwrap();
        let key = IdempotencyKey::new(&address, "reserve", b"order-42");
        assert_eq!(format!("{key:?}"), "305ecb68ad5e54e6acf000f7e5076eba");
        assert_eq!(format!("{:?}", PayloadDigest::new(b"payload")), "834daf92d043beca03d53d02cbdf92a4");
    }

    proptest! {
        #[test]
        fn moving_a_character_across_a_border_makes_another_key(a in "[a-c]{2,6}", b in "[a-c]{2,6}", m in "[a-c]{1,6}", k in "[a-c]{0,6}") {
            let key = |t: &str, i: &str, m: &str, k: &str| {
                IdempotencyKey::new(&EntityAddress::new(t, i).unwrap(), m, k.as_bytes())
            };
            let straight = key(&a, &b, &m, &k);
            prop_assert_ne!(straight, key(&a[..a.len() - 1], &format!("{}{b}", &a[a.len() - 1..]), &m, &k));
            prop_assert_ne!(straight, key(&a, &b[..b.len() - 1], &format!("{}{m}", &b[b.len() - 1..]), &k));
            prop_assert_ne!(straight, key(&a, &b, &format!("{m}{k}x"), ""));
        }
    }
}
