//! Records as Leases, and Leases as records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;

use crate::lease::{Name, Revision, Runner, RunnerRecord, ShardRecord, Timing};
use crate::shard::{Epoch, GroupName, Instance, Member, ShardId, State, Version};

/// The labels by which Leases and Pods are found.
pub mod label {
    pub use cleat_crds::LABEL_CLUSTER as CLUSTER;
    /// `runner` or `shard`.
    pub const LEASE: &str = "cleat.dev/lease";
    /// The shard group.
    pub const GROUP: &str = "cleat.dev/group";
    /// The number of the shard.
    pub const SHARD: &str = "cleat.dev/shard";
    /// `cleat-runner` on pods.
    pub const NAME: &str = "app.kubernetes.io/name";
}

/// What a runner says of itself on its Lease, and one thing about a shard.
pub mod annotation {
    /// Where its peers reach it.
    pub const ADDRESS: &str = "cleat.dev/address";
    /// Where its admin port is.
    pub const ADMIN: &str = "cleat.dev/admin";
    /// Where its gateway is.
    pub const GATEWAY: &str = "cleat.dev/gateway";
    /// How many shards it takes, compared to others.
    pub const WEIGHT: &str = "cleat.dev/weight";
    /// The shard groups that it serves.
    pub const GROUPS: &str = "cleat.dev/groups";
    /// The rollout that it belongs to.
    pub const VERSION: &str = "cleat.dev/version";
    /// Starting, ready or draining.
    pub const STATE: &str = "cleat.dev/state";
    /// Of the database.
    pub const SCHEMA: &str = "cleat.dev/schema";
    /// Shards that made no progress there.
    pub const AVOIDS: &str = "cleat.dev/avoids";
    /// `leaseDurationSeconds` to the millisecond.
    pub const DURATION: &str = "cleat.dev/lease-duration";
    /// How often it renews.
    pub const RENEW_EVERY: &str = "cleat.dev/renew-every";
    /// The Cluster that it serves: there may have been another of its name.
    pub const CLUSTER_UID: &str = "cleat.dev/cluster-uid";
    /// The pod that it runs in.
    pub const POD_UID: &str = "cleat.dev/pod-uid";
    /// When the process began, by the clock of its node.
    pub const STARTED: &str = "cleat.dev/started";
    /// Of the shard map, on the Lease of a shard.
    pub const GENERATION: &str = "cleat.dev/map-generation";
}

/// What a Lease of a Cluster says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The lock of a runner.
    Runner(RunnerRecord),
    /// Who has a shard.
    Shard(ShardRecord),
}

/// A Lease that does not say what it should: somebody has edited it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Lease {lease} cannot be read: {what}")]
pub struct Unreadable {
    lease: String,
    what: String,
}

impl Record {
    /// Reads a Lease.
    ///
    /// # Errors
    /// [`Unreadable`] says what is missing or wrong.
    pub fn read(lease: &Lease) -> Result<Self, Unreadable> {
        match labelled(lease, label::LEASE) {
            Some("runner") => read_runner(lease).map(Self::Runner),
            Some("shard") => read_shard(lease).map(Self::Shard),
            _ => Err(unreadable(lease, format!("its label {} is neither runner nor shard", label::LEASE))),
        }
    }
}

/// Who owns a Lease, so that it goes when its owner goes.
pub(super) struct Owner {
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) uid: String,
}

/// The Lease of a runner: of one that holds it, or of nobody. It counts how often it was taken.
pub(super) fn runner(cluster: &str, name: &Name, runner: Option<&Runner>, before: Option<&Lease>) -> Lease {
    let mut lease = lease(cluster, name.to_string(), "runner");
    let earlier = before.and_then(|before| before.spec.as_ref());
    let instance = runner.map(|runner| runner.instance().as_str().to_owned());
    let kept = instance.is_none() || earlier.is_some_and(|earlier| earlier.holder_identity == instance);
    let taken = earlier.and_then(|earlier| earlier.lease_transitions).unwrap_or(0);
    let now = MicroTime(Timestamp::now());
    let since = earlier.filter(|_| kept).and_then(|earlier| earlier.acquire_time.clone());
    lease.spec = Some(LeaseSpec {
        acquire_time: since.or_else(|| Some(now.clone())),
        holder_identity: instance,
        lease_duration_seconds: runner.map(|runner| whole_seconds(runner.timing.duration())),
        lease_transitions: Some(if kept { taken } else { taken.saturating_add(1) }),
        renew_time: Some(now),
        ..LeaseSpec::default()
    });
    lease.metadata.annotations = runner.map(annotations);
    lease
}

/// The Lease of a shard.
///
/// # Errors
/// [`Unreadable`] if its epoch is more than a Lease can hold.
pub(super) fn shard(cluster: &str, record: &ShardRecord) -> Result<Lease, Unreadable> {
    let ShardId { group, id } = &record.shard;
    let mut lease = lease(cluster, shard_name(cluster, &record.shard), "shard");
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.insert(label::GROUP.to_owned(), group.to_string());
    labels.insert(label::SHARD.to_owned(), id.to_string());
    let generation = (annotation::GENERATION.to_owned(), record.generation.to_string());
    lease.metadata.annotations = Some(BTreeMap::from([generation]));
    let epoch = i32::try_from(record.epoch.get())
        .map_err(|_| unreadable(&lease, format!("its epoch {} does not fit", record.epoch)))?;
    let now = MicroTime(Timestamp::now());
    lease.spec = Some(LeaseSpec {
        acquire_time: record.holder.as_ref().map(|_| now),
        holder_identity: record.holder.as_ref().map(|holder| holder.as_str().to_owned()),
        lease_transitions: Some(epoch),
        ..LeaseSpec::default()
    });
    Ok(lease)
}

/// Neither groups nor numbers have dots, so that no two shards share a name, of whatever Clusters they are.
pub(super) fn shard_name(cluster: &str, ShardId { group, id }: &ShardId) -> String {
    format!("{cluster}.{group}.{id}")
}

fn lease(cluster: &str, name: String, kind: &str) -> Lease {
    let labels = [(label::CLUSTER, cluster), (label::LEASE, kind)];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let metadata = ObjectMeta { name: Some(name), labels: Some(labels.into()), ..ObjectMeta::default() };
    Lease { metadata, spec: None }
}

/// Makes a Lease go when its owner goes.
pub(super) fn own(lease: &mut Lease, owner: Option<Owner>) {
    lease.metadata.owner_references = owner.map(|Owner { version, kind, name, uid }| {
        vec![OwnerReference {
            api_version: version.to_owned(),
            kind: kind.to_owned(),
            name,
            uid,
            ..OwnerReference::default()
        }]
    });
}

/// Says which Cluster of its name a runner serves.
pub(super) fn serve(lease: &mut Lease, cluster_uid: &str) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::CLUSTER_UID.to_owned(), cluster_uid.to_owned());
}

/// Whether the Lease is that of a runner of an earlier Cluster of the same name: one that was deleted, and whose runners are still
/// there for a while. A runner that does not say is taken for one of this Cluster.
#[must_use]
pub fn is_earlier(lease: &Lease, cluster_uid: &str) -> bool {
    annotated(lease, annotation::CLUSTER_UID).is_some_and(|uid| uid != cluster_uid)
}

/// Says which pod the holder of a runner's Lease runs in, and since when.
pub(super) fn bind(lease: &mut Lease, pod_uid: &str, started: Timestamp) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::POD_UID.to_owned(), pod_uid.to_owned());
    annotations.insert(annotation::STARTED.to_owned(), started.to_string());
}

/// In which pod an instance runs, and since when by the clock of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) instance: Instance,
    pub(super) pod_uid: String,
    pub(super) started: Timestamp,
}

/// Which pod the holder of a runner's Lease runs in, if it says so.
pub(super) fn binding(lease: &Lease) -> Option<Binding> {
    let pod_uid = annotated(lease, annotation::POD_UID)?.to_owned();
    let started = annotated(lease, annotation::STARTED)?.parse().ok()?;
    Some(Binding { instance: holder(lease)?, pod_uid, started })
}

/// Makes a write succeed only over that state.
pub(super) fn expect(lease: &mut Lease, revision: &Revision) {
    let (uid, version) = revision.as_str().split_once('/').unwrap_or(("", revision.as_str()));
    // Without a UID the server would make a Lease that was deleted anew.
    lease.metadata.uid = Some(uid.to_owned());
    lease.metadata.resource_version = Some(version.to_owned());
}

/// The state that a Lease is in.
pub(super) fn revision(lease: &Lease) -> Revision {
    let (uid, version) = (&lease.metadata.uid, &lease.metadata.resource_version);
    Revision::new(format!(
        "{}/{}",
        uid.as_deref().unwrap_or_default(),
        version.as_deref().unwrap_or_default()
    ))
}

/// Whether a Lease is one of this Cluster's.
pub(super) fn is_of(lease: &Lease, cluster: &str) -> bool {
    labelled(lease, label::CLUSTER) == Some(cluster) && labelled(lease, label::LEASE).is_some()
}

/// Who holds a Lease.
pub(super) fn holder(lease: &Lease) -> Option<Instance> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then(|| Instance::new(holder))
}

/// Which runner's Lease it is.
pub(super) fn name(lease: &Lease) -> Result<Name, Unreadable> {
    let name = lease.metadata.name.as_deref().unwrap_or_default();
    Name::new(name).map_err(|error| unreadable(lease, error))
}

/// Which shard's Lease it is.
pub(super) fn shard_id(lease: &Lease) -> Result<ShardId, Unreadable> {
    let group = labelled(lease, label::GROUP).unwrap_or_default();
    let group = GroupName::new(group).map_err(|error| unreadable(lease, error))?;
    let id = labelled(lease, label::SHARD).and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| unreadable(lease, format!("its label {} is not a number", label::SHARD)))?;
    Ok(ShardId::new(group, id))
}

pub(super) fn read_shard(lease: &Lease) -> Result<ShardRecord, Unreadable> {
    let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
    Ok(ShardRecord {
        shard: shard_id(lease)?,
        holder: holder(lease),
        epoch: Epoch::new(epoch.into()),
        generation: parsed(lease, annotation::GENERATION)?,
        revision: revision(lease),
    })
}

fn read_runner(lease: &Lease) -> Result<RunnerRecord, Unreadable> {
    let holder = holder(lease).map(|instance| read_holder(lease, instance)).transpose()?;
    Ok(RunnerRecord { name: name(lease)?, holder, revision: revision(lease) })
}

fn read_holder(lease: &Lease, instance: Instance) -> Result<Runner, Unreadable> {
    let state = said(lease, annotation::STATE)?;
    let state = State::parse(state).ok_or_else(|| unreadable(lease, format!("{state:?} is not a state")))?;
    let groups = list(lease, annotation::GROUPS, |item| GroupName::new(item).ok())?;
    let avoids = list(lease, annotation::AVOIDS, |item| {
        let (group, id) = item.split_once('/')?;
        Some(ShardId::new(GroupName::new(group).ok()?, id.parse().ok()?))
    })?;
    let timing = Timing::new(millis(lease, annotation::DURATION)?, millis(lease, annotation::RENEW_EVERY)?)
        .map_err(|error| unreadable(lease, error))?;
    let member = Member {
        instance,
        weight: parsed(lease, annotation::WEIGHT)?,
        groups,
        version: Version::new(said(lease, annotation::VERSION)?),
        state,
        avoids,
    };
    let maybe = |name| annotated(lease, name).map(str::to_owned);
    Ok(Runner {
        member,
        address: said(lease, annotation::ADDRESS)?.to_owned(),
        admin: maybe(annotation::ADMIN),
        gateway: maybe(annotation::GATEWAY),
        timing,
        // Nobody decides anything by it.
        schema: annotated(lease, annotation::SCHEMA).and_then(|schema| schema.parse().ok()),
    })
}

fn annotations(runner: &Runner) -> BTreeMap<String, String> {
    let Runner { member, address, admin, gateway, timing, schema } = runner;
    let said = [
        (annotation::ADDRESS, Some(address.clone())),
        (annotation::ADMIN, admin.clone()),
        (annotation::GATEWAY, gateway.clone()),
        (annotation::WEIGHT, Some(member.weight.to_string())),
        (annotation::GROUPS, Some(joined(&member.groups))),
        (annotation::VERSION, Some(member.version.to_string())),
        (annotation::STATE, Some(member.state.to_string())),
        (annotation::AVOIDS, Some(joined(&member.avoids)).filter(|avoids| !avoids.is_empty())),
        (annotation::DURATION, Some(format!("{}ms", timing.duration().as_millis()))),
        (annotation::RENEW_EVERY, Some(format!("{}ms", timing.interval().as_millis()))),
        (annotation::SCHEMA, schema.map(|schema| schema.to_string())),
    ];
    said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn joined<T: Display>(items: &BTreeSet<T>) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// At least that many seconds.
fn whole_seconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}

fn labelled<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    Some(lease.metadata.labels.as_ref()?.get(name)?)
}

fn annotated<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    Some(lease.metadata.annotations.as_ref()?.get(name)?)
}

fn said<'a>(lease: &'a Lease, name: &str) -> Result<&'a str, Unreadable> {
    annotated(lease, name).ok_or_else(|| unreadable(lease, format!("it has no annotation {name}")))
}

fn parsed<T: FromStr>(lease: &Lease, name: &str) -> Result<T, Unreadable> {
    let text = said(lease, name)?;
    text.parse().map_err(|_| unreadable(lease, format!("its annotation {name}={text:?} is not a number")))
}

fn millis(lease: &Lease, name: &str) -> Result<Duration, Unreadable> {
    let text = said(lease, name)?;
    let number = text.strip_suffix("ms").and_then(|number| number.parse().ok());
    let wrong = || unreadable(lease, format!("its annotation {name}={text:?} is not in milliseconds"));
    number.map(Duration::from_millis).ok_or_else(wrong)
}

/// What an annotation lists, separated by commas. No annotation is an empty list.
fn list<T: Ord>(
    lease: &Lease,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, Unreadable> {
    let text = annotated(lease, name).unwrap_or_default();
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(read);
    let wrong = || unreadable(lease, format!("its annotation {name}={text:?} is not a list of them"));
    items.collect::<Option<_>>().ok_or_else(wrong)
}

fn unreadable(lease: &Lease, what: impl Display) -> Unreadable {
    Unreadable { lease: lease.metadata.name.clone().unwrap_or_default(), what: what.to_string() }
}
