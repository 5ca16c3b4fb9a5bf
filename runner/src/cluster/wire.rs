//! What travels between runners beside the envelope.

use bytes::Bytes;

use crate::entity::{Caller, Delivered, Error, Request, Want};
use crate::message::{EntityAddress, Envelope, Outcome, RequestId, Snowflake, Uninterruptible, codec};

/// Headers that only runners see: they are taken off before a message is stored or handled.
const WANT: &str = "cleat-want";
const CALLER: &str = "cleat-caller";
const ABOUT: &str = "cleat-about";

/// What is asked about a request instead of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// To be told its end.
    Join,
    /// To interrupt it.
    Interrupt,
}

/// What another runner asks.
#[derive(Debug)]
pub(super) enum Asked {
    /// Something of an entity.
    Message(Request),
    /// Something about a request.
    About(About, RequestId),
}

/// The envelope of a question about a request. It may come twice, and its own id stands for nothing.
pub(super) fn about(question: About, request: &RequestId, id: Snowflake) -> Result<Envelope, Error> {
    let method = match question {
        About::Join => "join",
        About::Interrupt => "interrupt",
    };
    let request = request.to_string();
    Ok(Envelope {
        id,
        address: EntityAddress::new("cleat.request", &request)?,
        method: method.to_owned(),
        payload: Bytes::new(),
        persisted: true,
        key: None,
        deliver_at: None,
        uninterruptible: Uninterruptible::No,
        trace: None,
        headers: [(ABOUT.to_owned(), request)].into(),
    })
}

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

/// What an envelope from another runner asks.
pub(super) fn inward(mut envelope: Envelope, resent: bool) -> Asked {
    let about = envelope.headers.remove(ABOUT).and_then(|request| request.parse().ok());
    if let Some(request) = about {
        let question = if envelope.method == "join" { About::Join } else { About::Interrupt };
        return Asked::About(question, request);
    }
    let want = if envelope.headers.remove(WANT).is_some() { Want::Acceptance } else { Want::Reply };
    let caller = if envelope.headers.remove(CALLER).is_some() { Caller::Inside } else { Caller::Outside };
    Asked::Message(Request { envelope, caller, want, resent })
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
                let Asked::Message(there) = inward(outward(&request), true) else {
                    panic!("another question")
                };
                assert_eq!((there.want, there.caller, there.resent), (want, caller, true));
                assert_eq!(there.envelope, envelope);
            }
        }
    }

    #[test]
    fn a_question_about_a_request_is_not_taken_for_a_message() {
        let request: RequestId = "default-1a2b-0f3c5d7e9a1b2c3d".parse().unwrap();
        for question in [About::Join, About::Interrupt] {
            let envelope = about(question, &request, Snowflake::new(7)).unwrap();
            let Asked::About(asked, of) = inward(envelope, false) else { panic!("a message") };
            assert_eq!((asked, of), (question, request.clone()));
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
