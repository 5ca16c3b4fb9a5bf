//! What the server says of a definition: whether its names are accepted and its resource served.

use super::{list, text};
use crate::object;
use serde_json::{Value, json};

/// The names of a definition that collide with those of others in its group, as the condition says it.
fn name_conflict(definition: &Value, others: &[&Value]) -> Option<(&'static str, String)> {
    let names = &definition["spec"]["names"];
    for other in others {
        if other["spec"]["group"] != definition["spec"]["group"]
            || object::uid(other) == object::uid(definition)
        {
            continue;
        }
        let theirs = &other["status"]["acceptedNames"];
        let taken = [text(theirs, "plural"), text(theirs, "singular")];
        let is_taken = |name: &str| {
            !name.is_empty()
                && (taken.contains(&name) || list(theirs, "shortNames").iter().any(|short| short == name))
        };
        for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
            if is_taken(text(names, field)) {
                return Some((reason, format!("{:?} is already in use", text(names, field))));
            }
        }
        for name in list(names, "shortNames").iter().filter_map(Value::as_str) {
            if is_taken(name) {
                return Some(("ShortNamesConflict", format!("{name:?} is already in use")));
            }
        }
        let kinds = [text(theirs, "kind"), text(theirs, "listKind")];
        for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
            if kinds.contains(&text(names, field)) {
                return Some((reason, format!("{:?} is already in use", text(names, field))));
            }
        }
    }
    None
}

/// The status of a definition once its names have been looked at; equal to the present one if nothing is to be done.
pub(crate) fn accepted_status(definition: &Value, others: &[&Value], now: &str) -> Value {
    let mut status = definition["status"].clone();
    let fields = object::fields(&mut status);
    let conflict = name_conflict(definition, others);
    if conflict.is_none() {
        fields.insert("acceptedNames".to_owned(), definition["spec"]["names"].clone());
    }
    let conditions = fields.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    match conflict {
        None => {
            set_condition(conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now);
            set_condition(
                conditions,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            );
        }
        Some((reason, message)) => {
            set_condition(conditions, "NamesAccepted", "False", reason, &message, now);
            let established = conditions.as_array().is_some_and(|all| {
                all.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
            });
            if !established {
                set_condition(
                    conditions,
                    "Established",
                    "False",
                    "NotAccepted",
                    "not all names are accepted",
                    now,
                );
            }
        }
    }
    status
}

/// Sets a condition; its time changes only with its status.
pub(crate) fn set_condition(
    conditions: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let Value::Array(list) = conditions else { return };
    let existing = list.iter_mut().find(|condition| condition["type"] == kind);
    match existing {
        Some(condition) if condition["status"] == status => {
            condition["reason"] = json!(reason);
            condition["message"] = json!(message);
        }
        other => {
            let fresh = json!({
                "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
            });
            match other {
                Some(condition) => *condition = fresh,
                None => list.push(fresh),
            }
        }
    }
}

/// Whether a definition is established, so that its resource is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    list(&definition["status"], "conditions")
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_whose_kind_is_taken_is_not_established() {
        let names =
            json!({ "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" });
        let one = json!({ "metadata": { "uid": "1" }, "spec": { "group": "a.b", "names": names }, "status": { "acceptedNames": names } });
        let other = json!({ "metadata": { "uid": "2" }, "spec": { "group": "a.b", "names": {
            "kind": "Widget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList" } } });
        let status = accepted_status(&other, &[&one, &other], "now");
        assert_eq!(status["conditions"][0]["reason"], "KindConflict");
        assert_eq!(status["conditions"][1]["status"], "False");
    }
}
