//! Who waits for a call: the entities that asked each other, the first one first.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::message::{EntityAddress, Envelope, Snowflake};

/// The header in which the chain travels. It is stored with the message, since its handler may be run again.
const HEADER: &str = "cleat-chain";

/// Says that the key was made for an entity's call, and that a volatile method can do without.
pub(super) const DERIVED: &str = "cleat-derived-key";

/// Requests that wait for each other: the last one asks, and each waits for the one after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Chain(Vec<Link>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Link {
    #[serde(flatten)]
    address: EntityAddress,
    request: Snowflake,
}

impl Chain {
    /// The most entities that may wait for each other. Whoever needs more has probably written an endless recursion.
    pub const LIMIT: usize = 32;

    /// The chain that a message came by.
    pub(super) fn of(envelope: &Envelope) -> Self {
        let header = envelope.headers.get(HEADER);
        // Only runners write it, so what cannot be read is from a newer one: then deadlocks are found by time-outs.
        header.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The same, and the entity that handles this message, which asks the next one. None if it is too long then.
    pub(super) fn and(mut self, envelope: &Envelope) -> Option<Self> {
        self.0.push(Link { address: envelope.address.clone(), request: envelope.id });
        (self.0.len() <= Self::LIMIT).then_some(self)
    }

    /// The header of a message that is sent on behalf of the chain.
    pub(super) fn header(&self) -> Option<(String, String)> {
        Some((HEADER.to_owned(), serde_json::to_string(self).ok()?))
    }

    /// Whether a message has one.
    pub(super) fn is_in(envelope: &Envelope) -> bool {
        envelope.headers.contains_key(HEADER)
    }

    /// Takes off what nobody outside may say.
    pub(super) fn strip(envelope: &mut Envelope) {
        envelope.headers.remove(HEADER);
        envelope.headers.remove(DERIVED);
    }

    /// The requests of one entity in it.
    pub(super) fn requests_of<'a>(
        &'a self,
        address: &'a EntityAddress,
    ) -> impl Iterator<Item = Snowflake> + 'a {
        self.0.iter().filter(move |link| link.address == *address).map(|link| link.request)
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, link) in self.0.iter().enumerate() {
            let arrow = if place == 0 { "" } else { " -> " };
            write!(f, "{arrow}{}", link.address)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(entity: &str, id: i64) -> Envelope {
        Envelope {
            id: Snowflake::new(id),
            address: EntityAddress::new("clerk", entity).unwrap(),
            method: "ask".to_owned(),
            payload: bytes::Bytes::new(),
            persisted: true,
            key: None,
            deliver_at: None,
            uninterruptible: Default::default(),
            trace: None,
            headers: Default::default(),
        }
    }

    #[test]
    fn a_chain_travels_in_a_header_and_names_its_entities_in_order() {
        let chain = Chain::default().and(&envelope("a", 1)).unwrap().and(&envelope("b\n/", 2)).unwrap();
        let mut next = envelope("c", 3);
        next.headers.extend(chain.header());
        assert_eq!(Chain::of(&next), chain);
        assert_eq!(chain.to_string(), "clerk/a -> clerk/b\n/");
        let asked: Vec<_> = chain.requests_of(&envelope("a", 0).address).collect();
        assert_eq!(asked, [Snowflake::new(1)]);
        Chain::strip(&mut next);
        assert_eq!(next, envelope("c", 3));
    }

    #[test]
    fn a_chain_ends_at_its_limit() {
        let mut chain = Chain::default();
        for number in 0..i64::try_from(Chain::LIMIT).unwrap() {
            chain = chain.and(&envelope("a", number)).unwrap();
        }
        assert_eq!(chain.and(&envelope("a", 99)), None);
    }
}
