//! What travels between runners beside the envelope.

use crate::entity::{self, Caller, Delivered, Part, Request, Want};
use crate::message::{EntityAddress, Envelope, Outcome, RequestId, Sequence, Snowflake, codec};
use crate::shard::GroupName;

/// Headers that only runners see: they are taken off before a message is stored or handled.
const WANT: &str = "cleat-want";
const CALLER: &str = "cleat-caller";
const ABOUT: &str = "cleat-about";
const REQUEST: &str = "cleat-request";
const RESENT: &str = "cleat-resent";

/// What one runner asks another about a persisted request, by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// Its end.
    Join,
    /// Its items after those that the asking one has, then its end.
    Read,
    /// That its reader has everything up to this item.
    Acknowledge(Sequence),
    /// To stop it.
    Interrupt,
    /// To try it again, if it failed too often.
    Replay,
    /// To forget that it failed too often.
    Forget,
}

/// What another runner asks.
#[derive(Debug)]
pub(super) enum Asked {
    /// A message for an entity.
    Entity(Request),
    /// Something about a persisted request.
    About(RequestId, About),
    /// Something that this runner does not understand.
    Unknown(String),
}

/// The envelope of a request for another runner.
pub(super) fn outward(request: &Request) -> Envelope {
    let mut envelope = request.envelope.clone();
    // Whoever has one of these from outside does not speak for a runner.
    envelope.headers.retain(|name, _| ![WANT, CALLER, ABOUT, REQUEST, RESENT].contains(&name.as_str()));
    let want = match request.want {
        Want::Reply => None,
        Want::Acceptance => Some("acceptance"),
        Want::Stream => Some("stream"),
    };
    if let Some(want) = want {
        envelope.headers.insert(WANT.to_owned(), want.to_owned());
    }
    let caller = match request.caller {
        Caller::Outside => None,
        Caller::User => Some("user"),
        Caller::Inside => Some("inside"),
    };
    if let Some(caller) = caller {
        envelope.headers.insert(CALLER.to_owned(), caller.to_owned());
    }
    // Another owner may have handled it, and died before it could say so.
    if request.resent {
        envelope.headers.insert(RESENT.to_owned(), "true".to_owned());
    }
    envelope
}

/// The request of an envelope from another runner.
pub(super) fn inward(mut envelope: Envelope, resent: bool) -> Asked {
    if let Some(about) = envelope.headers.remove(ABOUT) {
        let request = envelope.headers.remove(REQUEST).unwrap_or_default();
        return match (request.parse(), read_about(&about, &envelope.payload)) {
            (Ok(request), Some(about)) => Asked::About(request, about),
            _ => Asked::Unknown(format!("{about} of request {request:?}")),
        };
    }
    let want = match envelope.headers.remove(WANT).as_deref() {
        None => Want::Reply,
        Some("acceptance") => Want::Acceptance,
        Some("stream") => Want::Stream,
        Some(other) => return Asked::Unknown(format!("a reply as {other:?}")),
    };
    let caller = match envelope.headers.remove(CALLER).as_deref() {
        Some("inside") => Caller::Inside,
        Some("user") => Caller::User,
        _ => Caller::Outside,
    };
    let resent = envelope.headers.remove(RESENT).is_some() || resent;
    // Whoever owns the entity has its definition, which knows the group.
    Asked::Entity(Request { envelope, caller, want, resent, group: GroupName::default() })
}

/// The envelope with which another runner is asked about a request. It has an id of its own, so that whoever goes away while it waits
/// does not interrupt the request itself.
pub(super) fn about(id: Snowflake, request: &RequestId, about: About) -> Result<Envelope, entity::Error> {
    let (method, payload) = match about {
        About::Join => ("join", Vec::new()),
        About::Read => ("read", Vec::new()),
        About::Interrupt => ("interrupt", Vec::new()),
        About::Replay => ("replay", Vec::new()),
        About::Forget => ("forget", Vec::new()),
        About::Acknowledge(sequence) => (
            "acknowledge",
            codec::encode(&sequence).map_err(|error| entity::Error::codec("a sequence", &error))?,
        ),
    };
    Ok(Envelope {
        id,
        address: EntityAddress::new("cleat", "request")?,
        method: method.to_owned(),
        payload: payload.into(),
        persisted: false,
        key: None,
        deliver_at: None,
        uninterruptible: Default::default(),
        trace: None,
        headers: [(ABOUT.to_owned(), method.to_owned()), (REQUEST.to_owned(), request.to_string())].into(),
    })
}

fn read_about(about: &str, payload: &[u8]) -> Option<About> {
    match about {
        "join" => Some(About::Join),
        "read" => Some(About::Read),
        "interrupt" => Some(About::Interrupt),
        "replay" => Some(About::Replay),
        "forget" => Some(About::Forget),
        "acknowledge" => codec::decode(payload).ok().map(About::Acknowledge),
        _ => None,
    }
}

/// What another runner has told at the end of a stream.
pub(super) fn heard_of_stream(outcome: Outcome) -> Part {
    match heard(Want::Stream, outcome) {
        Delivered::Accepted(id) => Part::Accepted(id),
        Delivered::Ended(outcome) => Part::End(outcome),
    }
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
        // What a stream ends with is no number.
        (Want::Acceptance | Want::Stream, Outcome::Success(id)) => {
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
        for want in [Want::Reply, Want::Acceptance, Want::Stream] {
            for caller in [Caller::Outside, Caller::User, Caller::Inside] {
                for (before, underway) in [(false, false), (false, true), (true, false), (true, true)] {
                    let group = GroupName::default();
                    let request = Request { envelope: envelope.clone(), caller, want, resent: before, group };
                    let Asked::Entity(there) = inward(outward(&request), underway) else {
                        panic!("it is a message")
                    };
                    let resent = before || underway;
                    assert_eq!((there.want, there.caller, there.resent), (want, caller, resent));
                    assert_eq!(there.envelope, envelope);
                }
            }
        }
    }

    #[test]
    fn what_is_asked_about_a_request_survives_the_way() {
        let request: RequestId = "default-1a2b-0f3c5d7e9a1b2c3d".parse().unwrap();
        for asked in [
            About::Join,
            About::Read,
            About::Acknowledge(Sequence(7)),
            About::Interrupt,
            About::Replay,
            About::Forget,
        ] {
            let envelope = about(Snowflake::new(1), &request, asked).unwrap();
            let Asked::About(heard, what) = inward(envelope, false) else { panic!("it is about a request") };
            assert_eq!((heard, what), (request.clone(), asked));
        }
    }

    #[test]
    fn nobody_outside_speaks_for_a_runner() {
        let mut envelope =
            about(Snowflake::new(1), &"default-0000-0000000000000001".parse().unwrap(), About::Join);
        let envelope = envelope.as_mut().unwrap().clone();
        let request = Request::new(envelope);
        assert!(outward(&request).headers.is_empty());
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
