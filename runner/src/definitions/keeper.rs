//! Makes a node serve what is declared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cleat_crds::cron_job::CronJobSpec;
use cleat_crds::entity_type::EntityTypeSpec;
use cleat_crds::workflow_type::WorkflowTypeSpec;
use tokio::sync::{Mutex, watch};

use super::{Declared, Fault, Kind, Problem, Set, cron};
use crate::client::Runtime;
use crate::cluster::Node;
use crate::egress::Egress;
use crate::entity::{Entity, UnreadDefinitions};
use crate::handler::{Natives, Plan};
use crate::message::EntityType;
use crate::shard::GroupName;
use crate::workflow::{self, Runtime as _};

/// How long to wait before a cron that could not be stored is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Makes a node serve workflows that are written as steps.
pub trait Workflows: Send + Sync + 'static {
    /// Serves a type, or replaces it for executions that start from now on.
    ///
    /// # Errors
    /// Everything that is wrong with it; then what was served before goes on being served.
    fn serve(
        &self,
        name: &str,
        spec: &WorkflowTypeSpec,
        set: &Set,
        natives: &Natives,
    ) -> Result<(), Vec<Fault>>;

    /// Serves a type no more.
    fn withdraw(&self, name: &str);

    /// Serves what has begun of a type that is not declared, with what it keeps of its definition.
    fn keep(&self, definition: workflow::Definition);
}

/// What is served now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Serving {
    /// The generations of the definitions that are served, by kind and name.
    pub generations: BTreeMap<(Kind, String), i64>,
    /// What is not served as it is declared, and why.
    pub problems: Vec<Problem>,
    /// The types that are compiled in.
    pub natives: Vec<String>,
}

/// Makes a node serve what is declared. Cheap to clone.
#[derive(Clone)]
pub struct Keeper {
    node: Node,
    egress: Egress,
    workflows: Option<Arc<dyn Workflows>>,
    kept: Arc<Mutex<Kept>>,
    serving: watch::Sender<Serving>,
    served: watch::Sender<Set>,
}

/// What has been done so far.
#[derive(Default)]
struct Kept {
    natives: Natives,
    entities: BTreeMap<String, Declared<EntityTypeSpec>>,
    workflows: BTreeMap<String, Declared<WorkflowTypeSpec>>,
    crons: BTreeMap<String, Declared<CronJobSpec>>,
}

impl Keeper {
    /// A keeper that has nothing to keep yet. What the node has registered so far is what is compiled in.
    pub fn new(node: Node, egress: Egress) -> Self {
        let compiled = node.host().types().into_iter().filter_map(|served| {
            let name = served.entity_type.as_str();
            // What begins so is part of the runtime.
            let entity =
                node.host().registered(&served.entity_type).filter(|_| !name.starts_with("cleat."))?;
            Some((name.to_owned(), entity))
        });
        let kept = Kept { natives: compiled.collect(), ..Kept::default() };
        let natives = kept.natives.keys().cloned().collect();
        let serving = watch::Sender::new(Serving { natives, ..Serving::default() });
        let served = watch::Sender::default();
        Self { node, egress, workflows: None, kept: Arc::new(Mutex::new(kept)), serving, served }
    }

    /// The same, telling there which types are served, as they are: of what is wrong now, the last good definition.
    #[must_use]
    pub fn telling(self, served: watch::Sender<Set>) -> Self {
        Self { served, ..self }
    }

    /// The same, for workflows, too.
    #[must_use]
    pub fn with_workflows(self, workflows: Arc<dyn Workflows>) -> Self {
        Self { workflows: Some(workflows), ..self }
    }

    /// What is served, now and from now on.
    pub fn serving(&self) -> watch::Receiver<Serving> {
        self.serving.subscribe()
    }

    /// Makes the node serve this, and comes back when it does. One set after the other: the last one that was given counts.
    pub async fn apply(&self, set: &Set) {
        self.serve(set).await;
    }

    /// The same. Whether all could be stored and read that had to.
    async fn serve(&self, set: &Set) -> bool {
        let mut kept = self.kept.lock().await;
        let mut problems = set.unreadable.clone();
        self.entities(&mut kept, set, &mut problems);
        self.workflows(&mut kept, set, &mut problems);
        let read = self.orphans().await;
        self.crons(&mut kept, set, &mut problems).await;
        problems.sort();
        let generations = of(Kind::EntityType, &kept.entities)
            .chain(of(Kind::WorkflowType, &kept.workflows))
            .chain(of(Kind::CronJob, &kept.crons))
            .collect();
        for problem in &problems {
            tracing::warn!(kind = %problem.kind, name = problem.name, reason = problem.fault.reason, fault = %problem.fault, "not served as declared");
        }
        let (entities, workflows) = (kept.entities.clone(), kept.workflows.clone());
        self.served.send_replace(Set { entities, workflows, ..Set::default() });
        let stored = !problems.iter().any(|problem| problem.fault.reason == "Unreachable");
        self.serving.send_if_modified(|serving| {
            let next = Serving { generations, problems, natives: kept.natives.keys().cloned().collect() };
            let changed = *serving != next;
            *serving = next;
            changed
        });
        read && stored
    }

    /// Applies the last set that a source has, again and again, until the source ends. What could not be stored or read is tried again.
    ///
    /// Until the first set is served, stored messages whose type is not known wait for it.
    pub fn follow(&self, sets: watch::Receiver<Option<Set>>) -> impl Future<Output = ()> + '_ {
        self.apply_each(sets, self.node.host().expect_definitions())
    }

    async fn apply_each(&self, mut sets: watch::Receiver<Option<Set>>, unread: UnreadDefinitions) {
        let mut unread = Some(unread);
        loop {
            let set = sets.borrow_and_update().clone();
            let reached = match &set {
                Some(set) => self.serve(set).await,
                None => true,
            };
            if set.is_some() && reached {
                drop(unread.take());
            }
            let changed = tokio::select! {
                changed = sets.changed() => changed,
                () = tokio::time::sleep(AGAIN), if !reached => Ok(()),
            };
            if changed.is_err() {
                return;
            }
        }
    }

    fn entities(&self, kept: &mut Kept, set: &Set, problems: &mut Vec<Problem>) {
        for name in gone(&kept.entities, &set.entities, Kind::EntityType, set) {
            kept.entities.remove(&name);
            self.release(&name, &kept.natives);
        }
        for (name, declared) in &set.entities {
            if same(&mut kept.entities, name, declared) {
                continue;
            }
            let entity = Plan::of(name, &declared.spec)
                .and_then(|plan| plan.entity(&kept.natives, &self.egress))
                .and_then(|entity| self.register(entity));
            match entity {
                Ok(()) => drop(kept.entities.insert(name.clone(), declared.clone())),
                Err(faults) => problems.extend(told(Kind::EntityType, name, declared.generation, faults)),
            }
        }
    }

    fn register(&self, entity: Arc<dyn Entity>) -> Result<(), Vec<Fault>> {
        let group = &entity.definition().group;
        if !self.node.host().maps().iter().any(|map| map.group() == group) {
            let message =
                format!("there is no shard group {group}: add it to the Cluster, or name another one");
            return Err(vec![Fault { path: "spec.shardGroup".to_owned(), reason: "NoSuchGroup", message }]);
        }
        self.node.register_entity(entity).map_err(|error| {
            vec![Fault { path: "spec".to_owned(), reason: "InvalidDefinition", message: error.to_string() }]
        })
    }

    /// Serves a type no more, or as it was compiled in.
    fn release(&self, name: &str, natives: &Natives) {
        if let Some(native) = natives.get(name) {
            if let Err(faults) = self.register(Arc::clone(native)) {
                tracing::error!(name, ?faults, "a compiled type is not served any more");
            }
        } else if let Ok(entity_type) = EntityType::new(name) {
            self.node.host().unregister(&entity_type);
        }
    }

    fn workflows(&self, kept: &mut Kept, set: &Set, problems: &mut Vec<Problem>) {
        let Some(workflows) = &self.workflows else { return };
        for name in gone(&kept.workflows, &set.workflows, Kind::WorkflowType, set) {
            kept.workflows.remove(&name);
            workflows.withdraw(&name);
        }
        for (name, declared) in &set.workflows {
            if same(&mut kept.workflows, name, declared) {
                continue;
            }
            match workflows.serve(name, &declared.spec, set, &kept.natives) {
                Ok(()) => drop(kept.workflows.insert(name.clone(), declared.clone())),
                Err(faults) => problems.extend(told(Kind::WorkflowType, name, declared.generation, faults)),
            }
        }
    }

    /// Executions go on whose type was deleted while nobody here knew it. Whether it is known which there are.
    async fn orphans(&self) -> bool {
        let Some(workflows) = &self.workflows else { return true };
        // Nothing else waits for a database that is down.
        match tokio::time::timeout(AGAIN, self.node.workflows().orphans()).await {
            Ok(Ok(orphans)) => {
                orphans.into_iter().for_each(|definition| workflows.keep(definition));
                return true;
            }
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "executions of types that are not declared could not be looked for");
            }
            Err(_) => tracing::warn!("executions of types that are not declared were not found in time"),
        }
        false
    }

    async fn crons(&self, kept: &mut Kept, set: &Set, problems: &mut Vec<Problem>) {
        // They live in the default group: where another one has a database for itself, nobody could see to them.
        if !self.node.host().maps().iter().any(|map| *map.group() == GroupName::default()) {
            return;
        }
        let failed = |error: &crate::cron::Error| {
            let mut message = error.to_string();
            if let Some(source) = std::error::Error::source(error) {
                message = format!("{message}: {source}");
            }
            vec![Fault { path: "spec".to_owned(), reason: "Unreachable", message }]
        };
        let unreadable = set.unreadable.iter().filter(|problem| problem.kind == Kind::CronJob);
        let names = set.crons.keys().cloned().chain(unreadable.map(|problem| problem.name.clone()));
        self.node.crons().declare(names);
        for name in gone(&kept.crons, &set.crons, Kind::CronJob, set) {
            match self.node.crons().remove(&name).await {
                Ok(()) => drop(kept.crons.remove(&name)),
                Err(error) => problems.extend(told(Kind::CronJob, &name, 0, failed(&error))),
            }
        }
        for (name, declared) in &set.crons {
            if same(&mut kept.crons, name, declared) {
                continue;
            }
            let registered = match cron::cron(name, &declared.spec) {
                Ok(cron) => self.node.register_cron(cron).await.map_err(|error| failed(&error)),
                Err(faults) => Err(faults),
            };
            match registered {
                Ok(()) => drop(kept.crons.insert(name.clone(), declared.clone())),
                Err(faults) => problems.extend(told(Kind::CronJob, name, declared.generation, faults)),
            }
        }
    }
}

fn of<S>(kind: Kind, kept: &BTreeMap<String, Declared<S>>) -> impl Iterator<Item = ((Kind, String), i64)> {
    kept.iter().map(move |(name, declared)| ((kind, name.clone()), declared.generation))
}

/// Whether a definition is served as it is. A version that says the same is the same.
fn same<S: PartialEq>(kept: &mut BTreeMap<String, Declared<S>>, name: &str, declared: &Declared<S>) -> bool {
    match kept.get_mut(name) {
        Some(known) if known.spec == declared.spec => {
            known.generation = declared.generation;
            true
        }
        _ => false,
    }
}

/// What is served and not declared any more, in whatever form.
fn gone<S>(
    kept: &BTreeMap<String, Declared<S>>,
    declared: &BTreeMap<String, Declared<S>>,
    kind: Kind,
    set: &Set,
) -> Vec<String> {
    let unreadable =
        |name: &str| set.unreadable.iter().any(|problem| problem.kind == kind && problem.name == name);
    kept.keys().filter(|name| !declared.contains_key(*name) && !unreadable(name)).cloned().collect()
}

fn told(kind: Kind, name: &str, generation: i64, faults: Vec<Fault>) -> impl Iterator<Item = Problem> {
    faults.into_iter().map(move |fault| Problem { kind, name: name.to_owned(), generation, fault })
}
