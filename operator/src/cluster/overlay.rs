//! What users lay over a pod template.

use serde_json::{Map, Value};

/// What tells the items of a list apart, by the name of the list. Other lists are replaced as a whole.
const KEYS: [(&str, &str); 8] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("imagePullSecrets", "name"),
    ("volumeMounts", "mountPath"),
    ("ports", "containerPort"),
    ("hostAliases", "ip"),
];

/// Lays one object over another: fields replace fields, items replace items of the same name, and `null` takes away.
pub fn lay(base: &mut Map<String, Value>, overlay: &Map<String, Value>) {
    for (name, value) in overlay {
        match (base.get_mut(name), value) {
            (_, Value::Null) => drop(base.remove(name)),
            (Some(Value::Object(base)), Value::Object(overlay)) => lay(base, overlay),
            (Some(Value::Array(base)), Value::Array(overlay)) => items(name, base, overlay),
            _ => drop(base.insert(name.clone(), value.clone())),
        }
    }
}

fn items(list: &str, base: &mut Vec<Value>, overlay: &[Value]) {
    let Some((_, key)) = KEYS.iter().find(|(name, _)| *name == list) else {
        *base = overlay.to_vec();
        return;
    };
    for item in overlay {
        let same = base.iter_mut().find(|known| known.get(key).is_some() && known.get(key) == item.get(key));
        match (same, item) {
            (Some(Value::Object(known)), Value::Object(item)) if list == "env" => {
                // A value and a source of values exclude each other.
                known.clear();
                known.extend(item.clone());
            }
            (Some(Value::Object(known)), Value::Object(item)) => lay(known, item),
            _ => base.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_merged_by_name_and_null_takes_away() {
        let mut base = json!({"spec": {
            "containers": [{"name": "runner", "image": "a", "env": [{"name": "A", "value": "1"}], "tty": true}],
            "tolerations": [{"key": "a"}],
        }});
        let overlay = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {
            "containers": [
                {"name": "runner", "resources": {"limits": {"cpu": "1"}}, "tty": null,
                 "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
                {"name": "proxy", "image": "p"},
            ],
            "tolerations": [{"key": "b"}],
        }});
        lay(base.as_object_mut().unwrap(), overlay.as_object().unwrap());
        assert_eq!(
            base,
            json!({"metadata": {"annotations": {"a": "b"}}, "spec": {
                "containers": [
                    {"name": "runner", "image": "a", "resources": {"limits": {"cpu": "1"}},
                     "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
                    {"name": "proxy", "image": "p"},
                ],
                "tolerations": [{"key": "b"}],
            }})
        );
    }
}
