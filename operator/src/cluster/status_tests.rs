//! Statuses of Clusters in all kinds of weather.

use cleat_crds::cluster::ClusterSpec;
use serde_json::json;

use super::*;
use crate::cluster::validate;

fn cluster(replicas: i32) -> Cluster {
    let spec: ClusterSpec = serde_json::from_value(json!({
        "replicas": replicas, "shards": 4, "database": {"secretRef": {"name": "db", "key": "url"}},
    }))
    .unwrap();
    let mut cluster = Cluster::new("default", spec);
    cluster.metadata.generation = Some(2);
    cluster
}

fn pod(name: &str, ready: bool) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::GROUP: "default"}},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    }))
    .unwrap()
}

fn runner(name: &str, state: &str, version: &str) -> Lease {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {
            annotation::STATE: state, annotation::VERSION: version, annotation::POD_UID: "u", annotation::GROUPS: "default",
        }},
        "spec": {"holderIdentity": format!("{name}/1")},
    }))
    .unwrap()
}

fn shard(number: i32, holder: &str) -> Lease {
    serde_json::from_value(json!({
        "metadata": {"labels": {label::GROUP: "default", label::SHARD: number.to_string()}},
        "spec": {"holderIdentity": format!("{holder}/1")},
    }))
    .unwrap()
}

fn judge(cluster: &Cluster, now: &Now) -> (ClusterStatus, bool) {
    judge_with(cluster, now, &[])
}

fn judge_with(cluster: &Cluster, now: &Now, reports: &[v1::RunnerStatus]) -> (ClusterStatus, bool) {
    let groups = validate::groups(cluster).unwrap();
    let time = Timestamp::from_second(1).unwrap();
    status(&Parts { cluster, groups: &groups, now, database: None, reports, time })
}

fn told(status: &ClusterStatus, type_: &str) -> (String, String) {
    let condition = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    (condition.status.clone(), condition.reason.clone())
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_cluster_is_ready_when_every_shard_has_an_owner_that_is_there() {
    let cluster = cluster(2);
    let mut now = Now {
        pods: vec![pod("a", true), pod("b", true)],
        runners: vec![runner("a", "ready", "3-0.1.0"), runner("b", "ready", "3-0.1.0")],
        shards: vec![shard(0, "a"), shard(1, "a"), shard(2, "b"), shard(3, "b")],
        ..Now::default()
    };
    let (status, settled) = judge(&cluster, &now);
    assert!(settled);
    assert_eq!(status.ready.as_deref(), Some("2/2"));
    assert_eq!(status.assigned.as_deref(), Some("4/4"));
    assert_eq!(status.version.as_deref(), Some("0.1.0"));
    assert_eq!(status.runners[0].shards, 2);
    assert_eq!(told(&status, "Ready"), is("True", "Serving"));
    assert_eq!(told(&status, "Progressing"), is("False", "Settled"));
    assert_eq!(status.observed_generation, Some(2));

    now.shards[3] = shard(3, "dead");
    let (status, settled) = judge(&cluster, &now);
    assert!(!settled);
    assert_eq!(told(&status, "Ready"), is("False", "ShardsUnassigned"));
    assert_eq!(status.assigned.as_deref(), Some("3/4"));
}

#[test]
fn what_keeps_pods_from_running_is_said() {
    let cluster = cluster(1);
    let state = |state: serde_json::Value, words: &str| {
        let pod = json!({
            "metadata": {"name": "a"},
            "status": {"containerStatuses": [{
                "name": "runner", "image": "x:1", "imageID": "", "ready": false, "restartCount": 3, "state": state,
                "lastState": {"terminated": {"exitCode": 1, "message": words}},
            }]},
        });
        let now = Now { pods: vec![serde_json::from_value(pod).unwrap()], ..Now::default() };
        let (status, settled) = judge(&cluster, &now);
        assert!(!settled);
        assert_eq!(told(&status, "Ready").0, "False");
        assert_eq!(status.runners[0].state, "starting");
        told(&status, "Degraded")
    };
    let waiting = |reason: &str| json!({"waiting": {"reason": reason, "message": "m"}});
    assert_eq!(state(waiting("ImagePullBackOff"), ""), is("True", "ImagePullFailed"));
    assert_eq!(state(waiting("CrashLoopBackOff"), "x\nboom\n"), is("True", "RunnersFailing"));
    // What a runner says last is what is looked for.
    let owner = "u-1".to_owned();
    let in_use = cleat_runner::runner::Error::Store(cleat_runner::store::Error::DatabaseInUse { owner });
    let words = json!({"level": "ERROR", "fields": {"message": crate::error::chain(&in_use), "reason": in_use.reason()}});
    assert_eq!(state(waiting("CrashLoopBackOff"), &words.to_string()), is("True", "DatabaseInUse"));
    assert_eq!(state(waiting("ContainerCreating"), ""), is("False", "AsExpected"));
}

#[test]
fn a_cluster_without_runners_says_so() {
    let (status, _) = judge(&cluster(0), &Now::default());
    assert_eq!(told(&status, "Ready"), is("False", "ScaledToZero"));
    let (status, _) = judge(&cluster(2), &Now::default());
    assert_eq!(told(&status, "Ready"), is("False", "RunnersNotReady"));
}

#[test]
fn a_runner_whose_pod_is_gone_is_not_counted() {
    let now = Now { runners: vec![runner("a", "ready", "1-x")], ..Now::default() };
    let (status, _) = judge(&cluster(1), &now);
    assert_eq!(status.runners[0].state, "gone");
    assert_eq!(status.ready.as_deref(), Some("0/1"));
}

#[test]
fn a_finding_that_runners_report_is_a_condition_until_the_last_one_clears_it() {
    let mut cluster = cluster(2);
    let report = |name: &str, reasons: &[&str]| v1::RunnerStatus {
        name: name.to_owned(),
        findings: reasons
            .iter()
            .map(|reason| v1::Finding {
                reason: (*reason).to_owned(),
                message: "the clock is 7 s ahead".to_owned(),
                ..v1::Finding::default()
            })
            .collect(),
        ..v1::RunnerStatus::default()
    };
    let (first, _) = judge_with(&cluster, &Now::default(), &[report("a", &[]), report("b", &[])]);
    assert!(first.conditions.iter().all(|condition| condition.type_ != "ClockSkew"), "nothing to report");

    let both = [report("a", &["ClockSkew"]), report("b", &["ClockSkew", "not a type", "Ready"])];
    let (status, _) = judge_with(&cluster, &Now::default(), &both);
    assert_eq!(told(&status, "ClockSkew"), is("True", "ReportedByRunner"));
    assert_eq!(told(&status, "Degraded"), is("True", "ClockSkew"));
    assert_eq!(told(&status, "Ready").0, "False", "a runner cannot set the Cluster's own conditions");
    let types: Vec<_> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["Ready", "Progressing", "Degraded", "ClockSkew"]);
    let message = &status.conditions[3].message;
    assert!(message.contains("runner a: the clock is 7 s ahead; runner b: "), "{message}");

    cluster.status = Some(status);
    let (status, _) = judge_with(&cluster, &Now::default(), &[report("a", &[])]);
    assert_eq!(told(&status, "ClockSkew"), is("False", "Cleared"));
    assert_eq!(told(&status, "Degraded"), is("False", "AsExpected"));
}
