//! Messages that failed too often, as users see them.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::desk::Desk;
use super::{Kind, Problem, json};
use crate::message::{RequestId, Snowflake};
use crate::store::DeadLetter;

/// A page of dead letters, and where the next one begins.
pub(super) type Page = (Vec<(RequestId, DeadLetter)>, Option<String>);

/// Which dead letters are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LetterFilter<'a> {
    /// Only those for entities of this type.
    pub(super) entity_type: Option<&'a str>,
    /// Only those whose last error contains this text.
    pub(super) reason: Option<&'a str>,
}

impl LetterFilter<'_> {
    fn selects(&self, letter: &DeadLetter) -> bool {
        let entity_type = letter.message.envelope.address.entity_type.as_str();
        self.entity_type.is_none_or(|wanted| wanted == entity_type)
            && self.reason.is_none_or(|reason| letter.error.contains(reason))
    }
}

impl Desk {
    /// Dead letters of all groups that a filter selects, newest first in each, at most `limit`.
    pub(super) async fn dead_letters(
        &self,
        filter: &LetterFilter<'_>,
        from: Option<&str>,
        limit: u32,
    ) -> Result<Page, Problem> {
        let from: Option<RequestId> =
            from.map(str::parse).transpose().map_err(|error| Problem::parameter("continue", error))?;
        let mut groups: Vec<_> = self.node.host().maps().iter().map(|map| map.group().clone()).collect();
        groups.sort();
        let mut page = Vec::new();
        let full = usize::try_from(limit).unwrap_or(usize::MAX);
        for group in groups {
            let mut before: Option<Snowflake> = match &from {
                Some(last) if group < last.group => continue,
                Some(last) if group == last.group => Some(last.id),
                _ => None,
            };
            loop {
                let left = u32::try_from(full - page.len()).unwrap_or(u32::MAX);
                let read = self.node.dead_letters(&group, before, left).await?;
                let is_end = read.len() < usize::try_from(left).unwrap_or(usize::MAX);
                before = read.last().map(|letter| letter.message.envelope.id);
                for letter in read.into_iter().filter(|letter| filter.selects(letter)) {
                    let envelope = &letter.message.envelope;
                    let id =
                        RequestId { group: group.clone(), slot: envelope.address.slot(), id: envelope.id };
                    page.push((id, letter));
                }
                if page.len() >= full {
                    let last = page.last().map(|(id, _)| id.to_string());
                    return Ok((page, last));
                }
                if is_end {
                    break;
                }
            }
        }
        Ok((page, None))
    }

    /// A dead letter.
    pub(super) async fn dead_letter(&self, id: &RequestId) -> Result<DeadLetter, Problem> {
        self.node.dead_letter(id).await?.ok_or_else(|| {
            let detail =
                format!("there is no dead letter {id}: it was replayed or dropped, or is not kept any more");
            Problem::new(Kind::NotFound, "NoSuchDeadLetter", detail)
        })
    }

    /// Makes a dead letter an open message again.
    pub(super) async fn replay(&self, id: &RequestId) -> Result<(), Problem> {
        // If it is gone between the two, somebody else did it, or this did and was asked twice underway.
        self.dead_letter(id).await?;
        self.node.replay(id).await?;
        Ok(())
    }

    /// Forgets a dead letter.
    pub(super) async fn forget(&self, id: &RequestId) -> Result<(), Problem> {
        self.dead_letter(id).await?;
        self.node.forget(id).await?;
        Ok(())
    }
}

/// A dead letter in JSON.
pub(super) fn shown(id: &RequestId, letter: &DeadLetter) -> Value {
    let envelope = &letter.message.envelope;
    json!({
        "id": id,
        "type": envelope.address.entity_type,
        "entity": envelope.address.id,
        "method": envelope.method,
        // What cannot be said in JSON is still listed.
        "input": json::value(&envelope.payload).unwrap_or_default(),
        "attempts": attempts(letter),
        "error": letter.error,
        "died": time(letter.died),
    })
}

/// How many attempts were made. The last one, after which it was given up, was not noted as one that failed.
pub(super) fn attempts(letter: &DeadLetter) -> u32 {
    u32::try_from(letter.attempt).unwrap_or(0).saturating_add(1)
}

/// A time as users read it.
pub(super) fn time(time: std::time::SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}
