//! What travels between runners beside the envelope.

use crate::entity::{Caller, Delivered, Request, Want};
use crate::message::{Envelope, Outcome, Snowflake, codec};

/// Headers that only runners see: they are taken off before a message is stored or handled.
const WANT: &str = "cleat-want";
const CALLER: &str = "cleat-caller";

/// The envelope of a request for another runner.
pub(super) fn outward(request: &Request) -> Envelope {
    let mut envelope = request.envelope.clone();
    if request.want == Want::Acceptance {
        envelope.headers.insert(WANT.to_owned(), "acceptance".to_owned());
    }
    if request.caller == Caller::Inside {
        envelope.headers.insert(CALLER.to_owned(), "inside".to_owned());
    }
    envelope
}

/// The request of an envelope from another runner.
pub(super) fn inward(mut envelope: Envelope, resent: bool) -> Request {
    let want = if envelope.headers.remove(WANT).is_some() { Want::Acceptance } else { Want::Reply };
    let caller = if envelope.headers.remove(CALLER).is_some() { Caller::Inside } else { Caller::Outside };
    Request { envelope, caller, want, resent }
}

/// What another runner is told when a request got what it wanted.
pub(super) fn told(delivered: Delivered) -> Outcome {
    match delivered {
        Delivered::Ended(outcome) => outcome,
        // A number has a form in MessagePack, always.
        Delivered::Accepted(id) => Outcome::Success(codec::encode(&id).unwrap_or_default().into()),
    }
}

/// What another runner has told.
pub(super) fn heard(want: Want, outcome: Outcome) -> Delivered {
    match (want, &outcome) {
        (Want::Acceptance, Outcome::Success(id)) => {
            codec::decode::<Snowflake>(id).map_or(Delivered::Ended(outcome), Delivered::Accepted)
        }
        _ => Delivered::Ended(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::EntityAddress;

    #[test]
    fn what_a_caller_wants_survives_the_way_and_leaves_no_trace() {
        let envelope = Envelope {
            id: Snowflake::new(1),
            address: EntityAddress::new("a", "b").unwrap(),
            method: "m".to_owned(),
            payload: bytes::Bytes::new(),
            persisted: true,
            key: None,
            deliver_at: None,
            uninterruptible: Default::default(),
            trace: None,
            headers: [("x".to_owned(), "y".to_owned())].into(),
        };
        for want in [Want::Reply, Want::Acceptance] {
            for caller in [Caller::Outside, Caller::Inside] {
                let request = Request { envelope: envelope.clone(), caller, want, resent: false };
                let there = inward(outward(&request), true);
                assert_eq!((there.want, there.caller, there.resent), (want, caller, true));
                assert_eq!(there.envelope, envelope);
            }
        }
    }

    #[test]
    fn an_acceptance_comes_back_with_the_id() {
        let id = Snowflake::new(42);
        let accepted = heard(Want::Acceptance, told(Delivered::Accepted(id)));
        assert_eq!(accepted, Delivered::Accepted(id));
        let ended = Delivered::Ended(Outcome::Success(bytes::Bytes::from_static(b"x")));
        assert_eq!(heard(Want::Reply, told(ended.clone())), ended);
    }
}
