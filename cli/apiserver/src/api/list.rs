//! get and list.

use super::{Api, Call, present};
use crate::http::{self, Format, Reply, View};
use crate::object;
use crate::schema::FieldError;
use crate::selector::{Fields, Labels};
use crate::status::Failure;
use crate::store::{Page, Stored};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

/// Which objects of a collection are meant.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    pub(super) labels: Labels,
    pub(super) fields: Fields,
    namespace: String,
}

impl Selection {
    /// Reads the selectors of a request.
    pub(super) fn of(call: &Call) -> Result<Self, Failure> {
        let labels = Labels::parse(call.query.get("labelSelector").unwrap_or_default())
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let fields = Fields::parse(call.query.get("fieldSelector").unwrap_or_default())
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let checked = match call.resource.builtin() {
            Some(kind) => fields.check_builtin(kind.group, kind.kind),
            None => fields.check_custom(call.resource.namespaced, &call.version.selectable),
        };
        checked.map_err(|error| Failure::bad_request(error.to_string()))?;
        let namespace = if call.resource.namespaced { call.target.namespace.clone() } else { String::new() };
        Ok(Self { labels, fields, namespace })
    }

    /// Whether everything in the bucket is meant.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.namespace.is_empty()
    }

    /// Whether an object is meant.
    pub(super) fn matches(&self, value: &Value) -> bool {
        (self.namespace.is_empty() || object::namespace(value) == self.namespace)
            && self.labels.matches(value)
            && self.fields.matches(value)
    }

    /// What the keys of all that is meant start with.
    pub(super) fn prefix(&self) -> String {
        if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) }
    }
}

/// Where a list that is read in pages goes on.
#[derive(Debug, PartialEq, Eq)]
struct Cursor {
    revision: u64,
    start: String,
}

impl Cursor {
    fn encode(&self) -> String {
        let text = json!({ "v": "meta.k8s.io/v1", "rv": self.revision, "start": self.start }).to_string();
        URL_SAFE_NO_PAD.encode(text)
    }

    fn decode(token: &str) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::bad_request(format!("continue key is not valid: {why}"));
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|error| wrong(error.to_string()))?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match (value["rv"].as_u64(), value["start"].as_str()) {
            (Some(revision), Some(start)) => Ok(Self { revision, start: start.to_owned() }),
            _ => Err(wrong("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned())),
        }
    }
}

fn bad_revision(error: &FieldError) -> Failure {
    Failure::bad_request(format!("invalid resource version: {error}"))
}

/// A revision as clients write it.
pub(super) fn revision_of(text: &str) -> Result<u64, FieldError> {
    text.parse().map_err(|_| {
        FieldError::invalid(
            "resourceVersion",
            json!(text),
            format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
        )
    })
}

fn check_options(call: &Call) -> Result<(), Failure> {
    let query = &call.query;
    let mut errors = Vec::new();
    if let Some(matching) = query.get("resourceVersionMatch") {
        let forbid = |why: &str| FieldError::forbidden("resourceVersionMatch", why);
        if query.get("resourceVersion").is_none() {
            errors.push(forbid("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if query.get("continue").is_some() {
            errors.push(forbid("resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported("resourceVersionMatch", json!(matching), &supported));
        }
        if matching == "Exact" && query.get("resourceVersion") == Some("0") {
            errors.push(forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if query.flag("sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = crate::status::Named { group: "meta.k8s.io", name: "ListOptions" };
    Err(Failure::invalid(&kind, "", &errors))
}

impl Api {
    /// get
    pub(super) async fn get(&self, call: &Call) -> Result<Reply, Failure> {
        if let Some(version) = call.query.get("resourceVersion") {
            self.reach(revision_of(version).map_err(|error| bad_revision(&error))?).await?;
        }
        let stored = self.stored(call)?;
        if call.view == View::Whole && call.format == Format::Json {
            let text = present::text(&call.resource, &call.version, &stored);
            return Ok(http::json_text(200, line(&text)));
        }
        Ok(http::object(200, call.format, &present::one(call, &stored)))
    }

    /// Waits until a revision has been reached, for a moment.
    pub(super) async fn reach(&self, revision: u64) -> Result<(), Failure> {
        let mut news = self.store.news();
        let reached = news.wait_for(|newest| *newest >= revision);
        match tokio::time::timeout(self.limits.catch_up, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Failure::unavailable("the server is shutting down")),
            Err(_) => Err(Failure::version_too_large(revision, self.store.revision())),
        }
    }

    /// The page of a list that a request asks for.
    pub(super) async fn page(&self, call: &Call, selection: &Selection) -> Result<Page, Failure> {
        check_options(call)?;
        let limit = call
            .query
            .number("limit")?
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| *limit > 0);
        let mut start = None;
        let mut at = None;
        let version = call
            .query
            .get("resourceVersion")
            .map(revision_of)
            .transpose()
            .map_err(|error| bad_revision(&error))?;
        if let Some(token) = call.query.get("continue") {
            if version.is_some_and(|version| version > 0) {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let cursor = Cursor::decode(token)?;
            start = Some(cursor.start);
            at = (cursor.revision > 0).then_some(cursor.revision);
        } else if let Some(version) = version {
            self.reach(version).await?;
            let exact = call.query.get("resourceVersionMatch") == Some("Exact");
            at = exact.then_some(version);
        }
        let prefix = selection.prefix();
        let plain = selection.is_everything() || (selection.labels.is_empty() && selection.fields.is_empty());
        let select = |stored: &Stored| {
            plain || selection.matches(&present::value(&call.resource, &call.version, stored))
        };
        let listed = self.store.list(&call.resource.bucket, &prefix, start.as_deref(), limit, at, select);
        listed.map_err(|compacted| match start {
            Some(_) => {
                let oldest = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
                Failure::expired(oldest)
            }
            None => Failure::expired(format!(
                "The resourceVersion for the provided list is too old: {} (oldest is {}).",
                at.unwrap_or_default(),
                compacted.oldest
            )),
        })
    }

    /// list
    pub(super) async fn list(&self, call: &Call) -> Result<Reply, Failure> {
        let selection = Selection::of(call)?;
        let page = self.page(call, &selection).await?;
        let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
        if call.resource.builtin().is_none() && call.view == View::Whole {
            metadata["continue"] = json!("");
        }
        if let Some(next) = &page.next {
            metadata["continue"] = json!(Cursor { revision: page.revision, start: next.clone() }.encode());
            // With a selector nobody knows how many of the rest are meant.
            if selection.labels.is_empty() && selection.fields.is_empty() {
                metadata["remainingItemCount"] = json!(page.remaining);
            }
        }
        let values = || {
            page.items.iter().map(|stored| (stored, present::value(&call.resource, &call.version, stored)))
        };
        let value = match call.view {
            View::Whole if call.format == Format::Json => {
                return Ok(http::json_text(200, list_text(call, &page, &metadata)));
            }
            View::Whole => {
                let items: Vec<Value> = values().map(|(_, value)| value.into_owned()).collect();
                json!({ "apiVersion": call.api_version(), "kind": call.resource.list_kind, "metadata": metadata, "items": items })
            }
            View::Metadata => {
                let items: Vec<Value> = values().map(|(_, value)| present::partial(&value)).collect();
                json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": metadata, "items": items })
            }
            View::Table => {
                let rows = values().map(|(stored, value)| present::row(call, stored, &value)).collect();
                present::table(call, rows, &metadata)
            }
        };
        Ok(http::object(200, call.format, &value))
    }
}

fn line(text: &Bytes) -> Bytes {
    let mut line = BytesMut::with_capacity(text.len() + 1);
    line.put_slice(text);
    line.put_u8(b'\n');
    line.freeze()
}

/// The list as text, put together from the texts of its items.
fn list_text(call: &Call, page: &Page, metadata: &Value) -> Bytes {
    let texts: Vec<Bytes> =
        page.items.iter().map(|stored| present::text(&call.resource, &call.version, stored)).collect();
    let size: usize = texts.iter().map(|text| text.len() + 1).sum();
    let mut body = BytesMut::with_capacity(size + 256);
    body.put_slice(format!("{{\"apiVersion\":{},\"items\":[", json!(call.api_version())).as_bytes());
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(text);
    }
    let tail = format!("],\"kind\":{},\"metadata\":{metadata}}}\n", json!(call.resource.list_kind));
    body.put_slice(tail.as_bytes());
    body.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_leads_back_to_where_it_was_made() {
        let cursor = Cursor { revision: 42, start: "a/b".into() };
        assert_eq!(Cursor::decode(&cursor.encode()).unwrap(), cursor);
        assert!(Cursor::decode("not a token").is_err());
        assert!(Cursor::decode(&URL_SAFE_NO_PAD.encode("{}")).is_err());
    }
}
