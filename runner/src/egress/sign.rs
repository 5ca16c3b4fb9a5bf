//! Proving who sent a body.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The header that carries the signature.
pub const SIGNATURE: &str = "cleat-signature";

/// `t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">`.
pub fn signature(secret: &[u8], body: &[u8], now: SystemTime) -> String {
    let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut text = format!("t={time},v1=");
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return text };
    mac.update(format!("{time}.").as_bytes());
    mac.update(body);
    for byte in mac.finalize().into_bytes() {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What `openssl dgst -sha256 -hmac secret` says of `1700000000.{"input":1}`.
    #[test]
    fn a_signature_is_what_others_compute() {
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_999);
        assert_eq!(
            signature(b"secret", br#"{"input":1}"#, now),
            "t=1700000000,v1=602c0737338f405cc86eef60156ff0a352eda5a67a314ddf832b23b1ed76be43"
        );
    }
}
