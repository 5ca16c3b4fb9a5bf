//! The scale subresource: the replicas of an object, whatever its kind.

use super::update::{ATTEMPTS, Lost};
use super::{Api, Call, admit, present};
use crate::http::{self, Reply, decode_json};
use crate::object;
use crate::patch;
use crate::registry::Scale;
use crate::schema::FieldError;
use crate::status::{Failure, Named};
use crate::store::Stored;
use serde_json::{Value, json};

const SCALE: Named<'static> = Named { group: "autoscaling", name: "Scale" };

/// A label selector as text.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

/// The Scale of an object.
fn scale_of(call: &Call, scale: &Scale, value: &Value) -> Value {
    let number = |path: &str| object::at_path(value, path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(found) = value["metadata"].get(field) {
            metadata[field] = found.clone();
        }
    }
    let mut status = json!({ "replicas": number(&scale.status_replicas) });
    let selector = match (&scale.selector, call.resource.builtin()) {
        (Some(path), _) => object::at_path(value, path).map(selector_text),
        (None, Some(_)) => Some(selector_text(&value["spec"]["selector"])),
        (None, None) => None,
    };
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        status["selector"] = json!(selector);
    }
    let replicas = number(&scale.spec_replicas);
    let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

impl Api {
    fn scale<'a>(&self, call: &'a Call) -> Result<&'a Scale, Failure> {
        call.version.scale.as_ref().ok_or_else(|| match call.resource.builtin() {
            Some(_) => Failure::no_resource(),
            None => call.not_found(),
        })
    }

    /// get of the scale
    pub(super) fn get_scale(&self, call: &Call) -> Result<Reply, Failure> {
        let scale = self.scale(call)?;
        let (_, value) = self.current(call)?;
        Ok(http::object(200, call.format, &scale_of(call, scale, &value)))
    }

    /// update of the scale
    pub(super) async fn update_scale(
        &self,
        call: &mut Call,
        media: &str,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let sent = admit::read(media, body)?.value;
        if !object::name(&sent).is_empty() {
            super::update::check_name(call, &sent)?;
        }
        self.change_scale(call, |_| Ok(sent.clone())).await
    }

    /// patch of the scale
    pub(super) async fn patch_scale(
        &self,
        call: &mut Call,
        media: &str,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let decoded = decode_json(body)
            .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
        let changes = decoded.value;
        match media {
            "application/json-patch+json" => {
                self.change_scale(call, |current| {
                    patch::json(current, &changes).map_err(|_| Failure::unprocessable())
                })
                .await
            }
            "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                self.change_scale(call, |current| {
                    let mut new = current.clone();
                    patch::merge(&mut new, &changes);
                    Ok(new)
                })
                .await
            }
            _ => Err(Failure::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json",
            )),
        }
    }

    async fn change_scale(
        &self,
        call: &mut Call,
        change: impl Fn(&Value) -> Result<Value, Failure>,
    ) -> Result<Reply, Failure> {
        let scale = &self.scale(call)?.clone();
        let dry_run = call.dry_run()?;
        for _ in 0..ATTEMPTS {
            let (stored, old) = self.current(call)?;
            let shown = scale_of(call, scale, &old);
            let wanted = change(&shown)?;
            let given = object::meta(&wanted, "resourceVersion");
            if !given.is_empty() && given != object::meta(&shown, "resourceVersion") {
                return Err(Failure::modified(&call.named(), &call.target.name));
            }
            let replicas = replicas_of(call, &wanted)?;
            let mut new = old.clone();
            object::set_path(&mut new, &scale.spec_replicas, json!(replicas));
            match self.replace(call, &stored, &old, new, false, dry_run).await {
                Ok(written) => return Ok(self.show_scale(call, scale, &written)),
                Err(Lost::Refused(failure)) => return Err(failure),
                Err(Lost::Race) => {}
            }
        }
        Err(Failure::modified(&call.named(), &call.target.name))
    }

    fn show_scale(&self, call: &Call, scale: &Scale, stored: &Stored) -> Reply {
        let value = present::value(&call.resource, &call.version, stored);
        http::object(200, call.format, &scale_of(call, scale, &value))
    }
}

fn replicas_of(call: &Call, wanted: &Value) -> Result<i64, Failure> {
    let replicas = match &wanted["spec"]["replicas"] {
        Value::Null => 0,
        Value::Number(number) if number.is_i64() => number.as_i64().unwrap_or(0),
        other => {
            let why = format!(
                "Scale in version \"v1\" cannot be handled as a Scale: {other} is not a number of replicas"
            );
            return Err(Failure::bad_request(why));
        }
    };
    if replicas < 0 {
        let name = &call.target.name;
        if call.resource.builtin().is_none() {
            let why = "should be a non-negative integer";
            let error = FieldError::invalid(".spec.replicas", json!(replicas), why);
            return Err(Failure::invalid(&call.resource.named_kind(), name, &[error]));
        }
        let error =
            FieldError::invalid("spec.replicas", json!(replicas), "must be greater than or equal to 0");
        return Err(Failure::invalid(&SCALE, name, &[error]));
    }
    Ok(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_reads_as_text() {
        let selector = json!({
            "matchLabels": { "a": "b" },
            "matchExpressions": [{ "key": "c", "operator": "In", "values": ["e", "d"] }, { "key": "f", "operator": "DoesNotExist" }],
        });
        assert_eq!(selector_text(&selector), "a=b,c in (d,e),!f");
    }
}
