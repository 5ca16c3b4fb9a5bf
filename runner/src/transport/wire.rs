//! Between the runtime's types and the frames on the wire.

use cleat_proto::v1::{self, frame::Kind};

use super::{Address, Error, Holder, Moved, Rejection};
use crate::message::codec::time;
use crate::message::{
    Chunk, Defect, EntityAddress, Envelope, Failure, IdempotencyKey, Outcome, Sequence, Snowflake,
    TraceContext, Uninterruptible,
};
use crate::shard::{GroupName, Instance, ShardId};

/// A frame that says what the types of the runtime cannot.
#[derive(Debug, thiserror::Error)]
pub(super) enum Invalid {
    #[error("there is no envelope in the request")]
    Envelope,
    #[error(transparent)]
    Address(#[from] crate::message::InvalidAddress),
    #[error("a key has 16 bytes, not {0}")]
    Key(usize),
    #[error(transparent)]
    Group(#[from] crate::shard::InvalidGroupName),
    #[error("a shard has a number below 65536, not {0}")]
    Shard(u32),
    #[error(transparent)]
    Holder(#[from] super::InvalidAddress),
}

pub(super) fn frame(kind: Kind) -> v1::Frame {
    v1::Frame { kind: Some(kind) }
}

pub(super) fn request(call: u64, resent: bool, after: Option<Sequence>, envelope: &Envelope) -> v1::Frame {
    let envelope = Some(write_envelope(envelope));
    frame(Kind::Request(v1::Request { call, resent, after: after.map(|s| s.0), envelope }))
}

fn write_envelope(envelope: &Envelope) -> v1::Envelope {
    v1::Envelope {
        id: envelope.id.get(),
        entity_type: envelope.address.entity_type.as_str().to_owned(),
        entity_id: envelope.address.id.as_str().to_owned(),
        method: envelope.method.clone(),
        payload: envelope.payload.clone(),
        persisted: envelope.persisted,
        key: envelope.key.map(|key| bytes::Bytes::copy_from_slice(key.as_bytes())).unwrap_or_default(),
        deliver_at: envelope.deliver_at.map(time::to_millis),
        uninterruptible: match envelope.uninterruptible {
            Uninterruptible::No => v1::Uninterruptible::No,
            Uninterruptible::Client => v1::Uninterruptible::Client,
            Uninterruptible::Server => v1::Uninterruptible::Server,
            Uninterruptible::Both => v1::Uninterruptible::Both,
        }
        .into(),
        trace: envelope.trace.as_ref().map(write_trace),
        headers: envelope.headers.clone(),
    }
}

fn write_trace(trace: &TraceContext) -> v1::Trace {
    let [high, low] = halves(trace.trace_id);
    v1::Trace { trace_id_high: high, trace_id_low: low, parent_id: trace.parent_id, sampled: trace.sampled }
}

fn halves(number: u128) -> [u64; 2] {
    let half = |shift: u32| u64::try_from(number >> shift & u128::from(u64::MAX)).unwrap_or_default();
    [half(64), half(0)]
}

pub(super) fn read_envelope(envelope: v1::Envelope) -> Result<Envelope, Invalid> {
    let key = match envelope.key.len() {
        0 => None,
        length => Some(IdempotencyKey::from_bytes(
            envelope.key.as_ref().try_into().map_err(|_| Invalid::Key(length))?,
        )),
    };
    Ok(Envelope {
        id: Snowflake::new(envelope.id),
        address: EntityAddress::new(&envelope.entity_type, &envelope.entity_id)?,
        method: envelope.method,
        payload: envelope.payload,
        persisted: envelope.persisted,
        key,
        deliver_at: envelope.deliver_at.map(time::from_millis),
        uninterruptible: match v1::Uninterruptible::try_from(envelope.uninterruptible).unwrap_or_default() {
            v1::Uninterruptible::No => Uninterruptible::No,
            v1::Uninterruptible::Client => Uninterruptible::Client,
            v1::Uninterruptible::Server => Uninterruptible::Server,
            v1::Uninterruptible::Both => Uninterruptible::Both,
        },
        // A trace without an id is none: it must not keep a request from being handled.
        trace: envelope.trace.and_then(|trace| {
            let trace_id = u128::from(trace.trace_id_high) << 64 | u128::from(trace.trace_id_low);
            (trace_id != 0 && trace.parent_id != 0).then_some(TraceContext {
                trace_id,
                parent_id: trace.parent_id,
                sampled: trace.sampled,
            })
        }),
        headers: envelope.headers,
    })
}

pub(super) fn chunk(call: u64, chunk: Chunk) -> v1::Frame {
    frame(Kind::Chunk(v1::Chunk { call, sequence: chunk.sequence.0, items: chunk.items }))
}

pub(super) fn read_chunk(chunk: v1::Chunk) -> Chunk {
    Chunk { sequence: Sequence(chunk.sequence), items: chunk.items }
}

pub(super) fn end(call: u64, outcome: Outcome) -> v1::Frame {
    let outcome = match outcome {
        Outcome::Success(bytes) => v1::end::Outcome::Success(bytes),
        Outcome::Failure(Failure { kind, message, details }) => {
            v1::end::Outcome::Failure(v1::Failure { kind, message, details })
        }
        Outcome::Defect(Defect { kind, message }) => {
            v1::end::Outcome::Defect(v1::Defect { kind, message, error: bytes::Bytes::new() })
        }
    };
    frame(Kind::End(v1::End { call, outcome: Some(outcome) }))
}

/// A defect for peers of an earlier release, and the error itself for others.
pub(super) fn rejection(call: u64, rejection: Rejection) -> v1::Frame {
    let Rejection { kind, message, error } = rejection;
    let outcome = v1::end::Outcome::Defect(v1::Defect { kind, message, error });
    frame(Kind::End(v1::End { call, outcome: Some(outcome) }))
}

pub(super) fn read_end(end: v1::End) -> Result<Outcome, Error> {
    Ok(match end.outcome {
        Some(v1::end::Outcome::Success(bytes)) => Outcome::Success(bytes),
        Some(v1::end::Outcome::Failure(v1::Failure { kind, message, details })) => {
            Outcome::Failure(Failure { kind, message, details })
        }
        Some(v1::end::Outcome::Defect(v1::Defect { kind, message, error })) if !error.is_empty() => {
            return Err(Error::Rejected(Rejection { kind, message, error }));
        }
        Some(v1::end::Outcome::Defect(v1::Defect { kind, message, .. })) => {
            Outcome::Defect(Defect { kind, message })
        }
        None => return Err(Error::Protocol("an end without an outcome".to_owned())),
    })
}

pub(super) fn moved(call: u64, moved: Moved) -> v1::Frame {
    let (instance, address) = match moved.holder {
        Some(holder) => (holder.instance.as_str().to_owned(), holder.address.as_str().to_owned()),
        None => Default::default(),
    };
    let shard = u32::from(moved.shard.id);
    frame(Kind::Moved(v1::Moved { call, group: moved.shard.group.into(), shard, instance, address }))
}

pub(super) fn read_moved(moved: v1::Moved) -> Result<Moved, Invalid> {
    let holder = match (moved.instance.as_str(), moved.address.as_str()) {
        ("", _) | (_, "") => None,
        (instance, address) => {
            Some(Holder { instance: Instance::new(instance), address: Address::new(address)? })
        }
    };
    Ok(Moved { shard: read_shard(moved.group, moved.shard)?, holder })
}

pub(super) fn hint(shard: ShardId) -> v1::Frame {
    frame(Kind::Hint(v1::Hint { shard: u32::from(shard.id), group: shard.group.into() }))
}

pub(super) fn read_shard(group: String, shard: u32) -> Result<ShardId, Invalid> {
    let id = u16::try_from(shard).map_err(|_| Invalid::Shard(shard))?;
    Ok(ShardId::new(GroupName::try_from(group)?, id))
}

pub(super) fn rejected(call: u64, reason: v1::rejected::Reason, message: impl Into<String>) -> v1::Frame {
    let message = message.into();
    frame(Kind::Rejected(v1::Rejected { call, reason: reason.into(), message, size: 0, limit: 0 }))
}

pub(super) fn too_large(call: u64, reason: v1::rejected::Reason, size: usize, limit: usize) -> v1::Frame {
    let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    frame(Kind::Rejected(v1::Rejected {
        call,
        reason: reason.into(),
        message: String::new(),
        size: number(size),
        limit: number(limit),
    }))
}

pub(super) fn read_rejected(rejected: v1::Rejected) -> Error {
    use v1::rejected::Reason;
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (size, limit) = (number(rejected.size), number(rejected.limit));
    match rejected.reason() {
        Reason::RequestTooLarge => Error::RequestTooLarge { size, limit },
        Reason::ReplyTooLarge => Error::ReplyTooLarge { size, limit },
        Reason::Invalid => Error::Invalid(rejected.message),
        Reason::Unavailable => Error::Unavailable(rejected.message),
        Reason::Resent | Reason::Abandoned => Error::Abandoned(rejected.message),
        Reason::Unspecified => Error::Protocol(rejected.message),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn envelope() -> impl Strategy<Value = Envelope> {
        let identity = (any::<i64>(), "[a-z]{1,8}", "[^\0]{1,8}", "[a-z]{1,8}");
        let payload = proptest::collection::vec(any::<u8>(), 0..64);
        let options = (any::<bool>(), any::<Option<[u8; 16]>>(), any::<Option<u32>>(), 0..4usize);
        let extras =
            (any::<Option<(u128, u64)>>(), proptest::collection::btree_map("[a-z]{1,8}", ".{0,8}", 0..4));
        (identity, payload, options, extras).prop_map(
            |((id, kind, entity, method), payload, (persisted, key, at, whose), (trace, headers))| Envelope {
                id: Snowflake::new(id),
                address: EntityAddress::new(&kind, &entity).unwrap(),
                method,
                payload: payload.into(),
                persisted,
                key: key.map(IdempotencyKey::from_bytes),
                deliver_at: at.map(|s| SystemTime::UNIX_EPOCH + Duration::from_millis(u64::from(s))),
                uninterruptible: [
                    Uninterruptible::No,
                    Uninterruptible::Client,
                    Uninterruptible::Server,
                    Uninterruptible::Both,
                ][whose],
                trace: trace.map(|(t, p)| TraceContext {
                    trace_id: t.max(1),
                    parent_id: p.max(1),
                    sampled: persisted,
                }),
                headers,
            },
        )
    }

    fn over_the_wire(frame: &v1::Frame) -> Kind {
        v1::Frame::decode(frame.encode_to_vec().as_slice()).unwrap().kind.unwrap()
    }

    proptest! {
        #[test]
        fn an_envelope_survives_the_wire(envelope in envelope(), call: u64, resent: bool, after in any::<Option<i32>>()) {
            let Kind::Request(read) = over_the_wire(&request(call, resent, after.map(Sequence), &envelope)) else {
                panic!("another frame")
            };
            prop_assert_eq!((read.call, read.resent, read.after), (call, resent, after));
            prop_assert_eq!(read_envelope(read.envelope.unwrap()).unwrap(), envelope);
        }

        #[test]
        fn an_outcome_survives_the_wire(which in 0..3u8, bytes: Vec<u8>, kind: String, message: String) {
            let outcome = match which {
                0 => Outcome::Success(bytes.into()),
                1 => Outcome::Failure(Failure { kind, message, details: bytes.into() }),
                _ => Outcome::Defect(Defect { kind, message }),
            };
            let Kind::End(read) = over_the_wire(&end(7, outcome.clone())) else { panic!("another frame") };
            prop_assert_eq!(read_end(read).unwrap(), outcome);
        }

        #[test]
        fn a_rejection_survives_the_wire(kind: String, message: String, error in proptest::collection::vec(any::<u8>(), 1..64)) {
            let sent = Rejection { kind, message, error: error.into() };
            let Kind::End(read) = over_the_wire(&rejection(7, sent.clone())) else { panic!("another frame") };
            let Err(Error::Rejected(read)) = read_end(read) else { panic!("another error") };
            prop_assert_eq!(read, sent);
        }

        #[test]
        fn a_chunk_survives_the_wire(sequence: i32, items in proptest::collection::vec(any::<Vec<u8>>(), 0..4)) {
            let sent = Chunk { sequence: Sequence(sequence), items: items.into_iter().map(Into::into).collect() };
            let Kind::Chunk(read) = over_the_wire(&chunk(7, sent.clone())) else { panic!("another frame") };
            prop_assert_eq!(read_chunk(read), sent);
        }

        #[test]
        fn a_redirect_survives_the_wire(id: u16, known: bool) {
            let holder = known.then(|| Holder {
                instance: Instance::random(),
                address: Address::new("[::1]:7400").unwrap(),
            });
            let sent = Moved { shard: ShardId::new(GroupName::default(), id), holder };
            let Kind::Moved(read) = over_the_wire(&moved(7, sent.clone())) else { panic!("another frame") };
            prop_assert_eq!(read_moved(read).unwrap(), sent);
        }
    }

    #[test]
    fn an_envelope_without_an_entity_is_refused() {
        assert!(matches!(read_envelope(v1::Envelope::default()), Err(Invalid::Address(_))));
        let key = v1::Envelope { key: "short".into(), ..Default::default() };
        assert!(matches!(read_envelope(key), Err(Invalid::Key(5))));
    }
}
