//! How values become bytes: MessagePack with named fields, so that old and new releases read each other.

mod json;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use json::to_json;

/// A value that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The value has no form in MessagePack.
    #[error("cannot write {what}")]
    Encode {
        /// The type.
        what: &'static str,
        /// Why.
        #[source]
        source: rmp_serde::encode::Error,
    },
    /// The bytes are not such a value.
    #[error("cannot read {what}")]
    Decode {
        /// The type.
        what: &'static str,
        /// Why.
        #[source]
        source: rmp_serde::decode::Error,
    },
}

/// Writes a value.
///
/// # Errors
/// [`Error::Encode`] if the value has no form in MessagePack, such as a map with an unknown length.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    rmp_serde::to_vec_named(value)
        .map_err(|source| Error::Encode { what: std::any::type_name::<T>(), source })
}

/// Reads a value.
///
/// # Errors
/// [`Error::Decode`] if the bytes are not such a value.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    rmp_serde::from_slice(bytes).map_err(|source| Error::Decode { what: std::any::type_name::<T>(), source })
}

/// Times as milliseconds of Unix time, for `#[serde(with)]`.
pub mod time {
    use std::time::{Duration, SystemTime};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Milliseconds of Unix time; what lies before 1970 is 1970.
    pub fn to_millis(time: SystemTime) -> i64 {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// The time of milliseconds of Unix time.
    pub fn from_millis(millis: i64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// Writes a time.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(time: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
        time.map(to_millis).serialize(to)
    }

    /// Reads a time.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<i64>::deserialize(from)?.map(from_millis))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use bytes::Bytes;
    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;
    use crate::message::*;

    fn envelope() -> impl Strategy<Value = Envelope> {
        let identity = (any::<i64>(), "[a-z]{1,8}", "[^\0]{1,8}", "[a-z]{1,8}");
        let payload = proptest::collection::vec(any::<u8>(), 0..64);
        let options = (any::<bool>(), any::<Option<[u8; 16]>>(), any::<Option<u32>>(), 0..4u8);
        let extras =
            (any::<Option<(u64, u64)>>(), proptest::collection::btree_map("[a-z]{1,8}", ".{0,8}", 0..4));
        (identity, payload, options, extras).prop_map(
            |((id, kind, entity, method), payload, (persisted, key, at, whose), (trace, headers))| Envelope {
                id: Snowflake::new(id),
                address: EntityAddress::new(&kind, &entity).unwrap(),
                method,
                payload: Bytes::from(payload),
                persisted,
                key: key.map(IdempotencyKey::from_bytes),
                deliver_at: at.map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(s))),
                uninterruptible: [
                    Uninterruptible::No,
                    Uninterruptible::Client,
                    Uninterruptible::Server,
                    Uninterruptible::Both,
                ][usize::from(whose)],
                trace: trace.map(|(t, p)| TraceContext {
                    trace_id: u128::from(t) + 1,
                    parent_id: p.max(1),
                    sampled: persisted,
                }),
                headers,
            },
        )
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..64).prop_map(|b| Outcome::Success(b.into())),
            (".{0,8}", ".{0,8}").prop_map(|(kind, message)| Outcome::failure(kind, message)),
            (".{0,8}", ".{0,8}").prop_map(|(kind, message)| Outcome::defect(kind, message)),
        ]
    }

    proptest! {
        #[test]
        fn an_envelope_survives_the_wire(envelope in envelope()) {
            prop_assert_eq!(decode::<Envelope>(&encode(&envelope).unwrap()).unwrap(), envelope);
        }

        #[test]
        fn an_outcome_survives_the_wire(outcome in outcome()) {
            prop_assert_eq!(decode::<Outcome>(&encode(&outcome).unwrap()).unwrap(), outcome);
        }

        #[test]
        fn bytes_that_are_no_envelope_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Envelope>(&bytes);
            let _ = decode::<Reply>(&bytes);
        }

        #[test]
        fn a_truncated_envelope_is_refused(envelope in envelope(), cut in 1usize..20) {
            let bytes = encode(&envelope).unwrap();
            prop_assert!(decode::<Envelope>(&bytes[..bytes.len() - cut.min(bytes.len())]).is_err());
        }
    }

    #[test]
    fn payloads_are_written_as_bytes_and_not_as_lists_of_numbers() {
        let outcome = Outcome::Success(Bytes::from(vec![200; 1000]));
        assert!(encode(&outcome).unwrap().len() < 1020);
    }

    #[test]
    fn a_field_that_a_newer_release_added_is_passed_over() {
        #[derive(Serialize)]
        struct Newer {
            kind: &'static str,
            message: &'static str,
            since: u32,
        }
        let bytes = encode(&Newer { kind: "Panicked", message: "oh", since: 7 }).unwrap();
        assert_eq!(decode::<Defect>(&bytes).unwrap().kind, "Panicked");
    }
}
