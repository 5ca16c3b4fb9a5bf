//! Types of entities.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleat_crds::entity_type::{EntityType, EntityTypeStatus, Handler};
use cleat_crds::{Cluster, EntityType as Kind};
use cleat_runner::definitions::check;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::{Definition, accepted, concerned, count, placed, ready, sound};
use crate::apply;
use crate::condition::conditions;
use crate::controller::{Context, Known, Lookup, Next, Reconcile};
use crate::error::Error;
use crate::names::DEFAULT_GROUP;
use crate::runners::Key;

/// Says how types of entities are doing.
pub struct EntityTypes {
    /// What all controllers share.
    pub context: Context,
    /// The Clusters that are known.
    pub clusters: Known<Cluster>,
}

impl Reconcile for EntityTypes {
    type Object = Kind;
    const KIND: &'static str = "EntityType";
    const MANAGER: &'static str = "cleat.dev/entitytype";

    async fn reconcile(&self, entity: &Arc<EntityType>) -> Result<Next, Error> {
        if entity.meta().deletion_timestamp.is_some() {
            return Ok(Next::Change);
        }
        // Before they are known, every Cluster would be missing.
        self.clusters.loaded().await;
        let (namespace, wanted) = (entity.namespace().unwrap_or_default(), &entity.spec.cluster_ref.name);
        let cluster = self.clusters.find_one(&namespace, wanted);
        let runners = self.context.runners.statuses(&Key { namespace, name: wanted.clone() });
        let name = entity.name_any();
        let definition = Definition {
            kind: Self::KIND,
            name: &name,
            generation: entity.meta().generation.unwrap_or(0),
            group: entity.spec.shard_group.as_deref().unwrap_or(DEFAULT_GROUP),
        };
        let checked = placed(cluster.as_deref(), wanted, entity.spec.shard_group.as_deref())
            .and_then(|()| sound(&check::entity_type(&name, &entity.spec)))
            .and_then(|()| accepted(&definition, &runners));
        let concerned = concerned(&definition, &runners);
        let types = concerned.iter().flat_map(|runner| &runner.entity_types);
        let ours: Vec<_> = types.filter(|known| known.name == name).collect();
        let serving = ours.iter().filter(|known| known.generation >= definition.generation).count();
        let before = entity.status.clone().unwrap_or_default();
        let finding = ready(checked, serving, concerned.len());
        let active: u64 = ours.iter().map(|known| known.active).sum();
        let status = EntityTypeStatus {
            conditions: conditions(
                &before.conditions,
                vec![finding],
                entity.meta().generation,
                Timestamp::now(),
            ),
            observed_generation: entity.meta().generation,
            handler: Some(handler(entity)),
            methods: count(entity.spec.methods.len()),
            runners: count(serving),
            active: i64::try_from(active).unwrap_or(i64::MAX),
        };
        if apply::status(&self.context.client, &**entity, Self::MANAGER, &before, &status).await? {
            self.context.metrics.statuses.with_label_values(&[Self::KIND]).inc();
        }
        Ok(Next::Change)
    }
}

/// Who answers, in one word.
fn handler(entity: &EntityType) -> String {
    let spec = &entity.spec;
    let rest = match &spec.handler {
        Some(Handler::Native(_)) => Some("native"),
        Some(Handler::Http(_)) => Some("http"),
        None => None,
    };
    let of = spec.methods.iter().filter_map(|method| match (&method.cel, &method.http) {
        (Some(_), _) => Some("cel"),
        (_, Some(_)) => Some("http"),
        _ => rest,
    });
    let kinds: BTreeSet<_> = of.chain(spec.methods.is_empty().then_some(rest).flatten()).collect();
    match kinds.len() {
        0 => "none".to_owned(),
        1 => kinds.into_iter().collect(),
        _ => "mixed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_answers_is_said_in_one_word() {
        let told = |spec| handler(&EntityType::new("e", serde_json::from_value(spec).unwrap()));
        let (cel, http) =
            (json!({"name": "a", "cel": {}}), json!({"name": "b", "http": {"url": "http://x"}}));
        assert_eq!(told(json!({"methods": [cel]})), "cel");
        assert_eq!(told(json!({"methods": [cel, http]})), "mixed");
        assert_eq!(told(json!({"handler": {"native": {"type": "e"}}})), "native");
        assert_eq!(told(json!({"handler": {"native": {"type": "e"}}, "methods": [{"name": "c"}]})), "native");
    }
}
