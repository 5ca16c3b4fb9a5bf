//! Who belongs to whom. A pure index over the events of the store.

use crate::object;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// An object, by where it is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) bucket: String,
    pub(super) key: String,
}

/// The dependents of each owner, by the owner's identity.
#[derive(Debug, Default)]
pub(super) struct Graph {
    dependents: HashMap<String, BTreeSet<Place>>,
    /// The owners that each object had when it was last seen, so that a change can be undone.
    owners: HashMap<Place, Vec<String>>,
}

impl Graph {
    /// Takes in an object as it is now.
    pub(super) fn put(&mut self, place: &Place, value: &Value) {
        self.remove(place);
        let owners: Vec<String> = object::owners(value).iter().map(|owner| owner.uid.to_owned()).collect();
        for owner in &owners {
            self.dependents.entry(owner.clone()).or_default().insert(place.clone());
        }
        if !owners.is_empty() {
            self.owners.insert(place.clone(), owners);
        }
    }

    /// Forgets an object; those that depend on it stay listed under its identity.
    pub(super) fn remove(&mut self, place: &Place) {
        for owner in self.owners.remove(place).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&owner) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
    }

    /// The dependents of an object.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn place(n: u8) -> Place {
        Place { bucket: "b".into(), key: n.to_string() }
    }

    fn owned_by(owners: &[u8]) -> Value {
        let owners: Vec<Value> = owners.iter().map(|owner| json!({ "uid": owner.to_string() })).collect();
        json!({ "metadata": { "ownerReferences": owners } })
    }

    proptest! {
        #[test]
        fn the_index_is_what_the_last_states_say(
            steps in proptest::collection::vec((0u8..6, proptest::option::of(proptest::collection::vec(0u8..4, 0..3))), 0..40),
        ) {
            let mut graph = Graph::default();
            let mut last: HashMap<u8, Vec<u8>> = HashMap::new();
            for (object, owners) in steps {
                match owners {
                    Some(owners) => {
                        graph.put(&place(object), &owned_by(&owners));
                        last.insert(object, owners);
                    }
                    None => {
                        graph.remove(&place(object));
                        last.remove(&object);
                    }
                }
            }
            for owner in 0u8..4 {
                let mut wanted: Vec<Place> =
                    last.iter().filter(|(_, owners)| owners.contains(&owner)).map(|(object, _)| place(*object)).collect();
                wanted.sort();
                prop_assert_eq!(graph.dependents(&owner.to_string()), wanted);
            }
        }
    }
}
