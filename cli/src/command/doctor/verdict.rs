//! What is to be thought of what was found. Pure.

use std::time::{Duration, SystemTime};

use cleat_crds::Cluster;
use cleat_runner::runner::reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::Looked;
use crate::command::runners::Runner;
use crate::output::age;
use crate::target::Platform;

/// Clocks that are further apart than this confuse people, though not runners.
const SKEW: Duration = Duration::from_secs(5);

/// Why runners cannot use their database, in the Cluster's words.
const DATABASE: [&str; 4] =
    [reason::BINARY_TOO_OLD, reason::DATABASE_IN_USE, reason::DATABASE_REFUSED, reason::DATABASE_UNAVAILABLE];

pub(super) fn cluster(platform: &Platform, found: &Result<Option<Cluster>, kube::Error>) -> Looked {
    let name = &platform.cluster;
    match found {
        Ok(Some(cluster)) => match condition(cluster, "Ready") {
            Some(condition) if condition.status == "True" => Ok(format!("{name} is ready")),
            Some(condition) => {
                Err((format!("{name} is not ready: {}", condition.reason), condition.message.clone()))
            }
            None => Err((
                format!("{name} was not looked at by any operator"),
                "is the operator running? `kubectl get pods -A -l app.kubernetes.io/name=cleat`".to_owned(),
            )),
        },
        Ok(None) => Err((
            format!("there is no Cluster {name} in namespace {}", platform.namespace),
            "create one (docs/install.md), or name another with --cluster and -n".to_owned(),
        )),
        Err(error) => Err((error.to_string(), "see the permissions above".to_owned())),
    }
}

fn condition<'c>(cluster: &'c Cluster, name: &str) -> Option<&'c Condition> {
    cluster.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == name)
}

/// The health findings that runners report, from the conditions of their Cluster: one line for each, or one that says that there are none.
pub(super) fn health(cluster: Option<&Cluster>) -> Vec<(String, Looked)> {
    let Some(status) = cluster.and_then(|cluster| cluster.status.as_ref()) else { return Vec::new() };
    let own = ["Ready", "Progressing", "Degraded"];
    let reported = status.conditions.iter().filter(|condition| !own.contains(&condition.type_.as_str()));
    let lines: Vec<_> = reported
        .filter(|condition| condition.status == "True")
        .map(|condition| {
            let since = condition.last_transition_time.0.to_string();
            let looked = Err((format!("reported since {since}"), condition.message.clone()));
            (condition.type_.clone(), looked)
        })
        .collect();
    if lines.is_empty() {
        return vec![("health".to_owned(), Ok("no runner reports a finding".to_owned()))];
    }
    lines
}

/// What runners see of their database: durability, connections and replication. Nothing if no runner has said it yet.
pub(super) fn database(cluster: Option<&Cluster>) -> Vec<(&'static str, Looked)> {
    let Some(facts) = cluster.and_then(|cluster| cluster.status.as_ref()).map(|status| &status.database)
    else {
        return Vec::new();
    };
    let fact = |name: &str| facts.get(name).map_or("not known", String::as_str);
    if facts.is_empty() {
        return Vec::new();
    }
    let names = ["fsync", "full_page_writes", "data_sync_retry", "data_checksums"];
    let shown = names.map(|name| format!("{name} {}", fact(name))).join(", ");
    let shown = format!("PostgreSQL {}, {shown}", fact("server_version"));
    let unsafe_setting = [("fsync", "off"), ("full_page_writes", "off"), ("data_sync_retry", "on")]
        .into_iter()
        .find(|(name, bad)| fact(name) == *bad);
    let durability = match unsafe_setting {
        None => Ok(shown),
        Some((name, bad)) => Err((
            shown,
            format!(
                "{name} = {bad} loses acknowledged writes or corrupts the database after a crash: change it"
            ),
        )),
    };
    let number = |name: &str| fact(name).parse::<i64>().ok();
    let connections = format!(
        "{} of max_connections {} are usable, runners need {} with one more during a rolling update",
        fact("usable_connections"),
        fact("max_connections"),
        fact("needed_connections")
    );
    let connections = match (number("usable_connections"), number("needed_connections")) {
        (Some(usable), Some(needed)) if needed > usable => Err((
            connections,
            "raise max_connections: docs/configuration.md says how to compute it".to_owned(),
        )),
        _ => Ok(connections),
    };
    let names = fact("synchronous_standby_names");
    let replication = match (names, fact("standbys")) {
        ("", "0") => "none".to_owned(),
        ("", standbys) => format!("asynchronous, {standbys} connected"),
        (names, standbys) => {
            format!("synchronous_commit {} to {names}, {standbys} connected", fact("synchronous_commit"))
        }
    };
    vec![
        ("database", durability),
        ("database connections", connections),
        ("database replication", Ok(replication)),
    ]
}

pub(super) fn runners(known: &[Runner]) -> Looked {
    let ready = known.iter().filter(|runner| runner.state == "ready").count();
    if ready > 0 {
        return Ok(format!("{ready} of {} are ready", known.len()));
    }
    Err((
        format!("none of {} is ready", known.len()),
        "look at their pods: `kubectl get pods -l app.kubernetes.io/name=cleat-runner` and their logs"
            .to_owned(),
    ))
}

/// Whoever holds a Lease renews it in time. What it says of itself stays in it when it is gone.
pub(super) fn leases(known: &[Runner], now: SystemTime) -> Looked {
    let silent = known.iter().filter(|runner| runner.state != "gone").find_map(|runner| {
        let silent = now.duration_since(renewed(runner)?).ok()?;
        let lasts = Duration::from_secs(runner.lease_seconds?);
        (silent > lasts + SKEW).then_some((&runner.name, silent, lasts))
    });
    match silent {
        None => Ok("all are renewed in time".to_owned()),
        Some((name, silent, lasts)) => Err((
            format!("{name} has not renewed its Lease for {}, which lasts {}", age(silent), age(lasts)),
            format!(
                "if `kubectl get pod {name}` has it running, its clock is behind or it does not reach the API server: see its logs"
            ),
        )),
    }
}

/// Runners renew with their own clocks: if a renewal lies in the future, one of the clocks is wrong.
pub(super) fn clock(known: &[Runner], now: SystemTime) -> Looked {
    let ahead = known.iter().filter_map(|runner| renewed(runner)?.duration_since(now).ok()).max();
    match ahead.filter(|ahead| *ahead > SKEW) {
        None => Ok("no runner's clock is ahead of this one".to_owned()),
        Some(ahead) => Err((
            format!("a runner's clock is {} ahead of this one", age(ahead)),
            "nothing is lost by that, but schedules are off: check the time service of the nodes".to_owned(),
        )),
    }
}

fn renewed(runner: &Runner) -> Option<SystemTime> {
    chrono::DateTime::parse_from_rfc3339(runner.renewed.as_deref()?).ok().map(SystemTime::from)
}

pub(super) fn shards(cluster: Option<&Cluster>, known: &[Runner]) -> Looked {
    let total = cluster.map_or(0, |cluster| {
        let groups: i32 = cluster.spec.shard_groups.iter().map(|group| group.shards).sum();
        usize::try_from(cluster.spec.shards + groups).unwrap_or(0)
    });
    let owned: usize = known.iter().filter(|runner| runner.state != "gone").map(|runner| runner.shards).sum();
    if owned >= total {
        return Ok(format!("{owned} of {total} have an owner"));
    }
    Err((
        format!("{} of {total} have no owner", total - owned),
        "if it stays so for longer than a lease, look at the runners' logs; `cleat shards` draws them"
            .to_owned(),
    ))
}

/// A runner brings the database to the schema that it knows, or gives up and says why; so the database itself need not be asked.
pub(super) fn schema(cluster: Option<&Cluster>, known: &[Runner]) -> Looked {
    let trouble = cluster.and_then(|cluster| condition(cluster, "Degraded"));
    if let Some(trouble) = trouble.filter(|trouble| trouble.status == "True")
        && DATABASE.contains(&trouble.reason.as_str())
    {
        return Err((format!("a runner gives up: {}", trouble.reason), trouble.message.clone()));
    }
    let serving: Vec<&Runner> = known.iter().filter(|runner| runner.state == "ready").collect();
    let Some(newest) = serving.iter().filter_map(|runner| runner.schema).max() else {
        return match serving.is_empty() {
            true => Err((
                "not known, as no runner uses the database".to_owned(),
                "get a runner ready: see above".to_owned(),
            )),
            false => Ok("not known, as these runners do not say it".to_owned()),
        };
    };
    let behind = serving.iter().filter(|runner| runner.schema != Some(newest)).count();
    Ok(match behind {
        0 => format!("{newest}, which all runners know"),
        _ => format!("{newest}; {behind} of {} runners know an earlier one, as in an upgrade", serving.len()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn runner(name: &str, state: &str, schema: Option<i32>, renewed: &str) -> Runner {
        Runner {
            name: name.to_owned(),
            instance: format!("{name}#1"),
            state: state.to_owned(),
            groups: "default".to_owned(),
            shards: 16,
            version: "0.1.0".to_owned(),
            address: "10.0.0.1:7400".to_owned(),
            renewed: Some(renewed.to_owned()),
            lease_seconds: Some(10),
            schema,
        }
    }

    fn cluster(degraded: &str, reason: &str) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cleat.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "default"},
            "spec": {"shards": 32, "database": {"secretRef": {"name": "cleat-database", "key": "url"}}},
            "status": {"conditions": [{
                "type": "Degraded", "status": degraded, "reason": reason, "message": "run a newer one",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap()
    }

    fn at(time: &str) -> SystemTime {
        chrono::DateTime::parse_from_rfc3339(time).unwrap().into()
    }

    const NOW: &str = "2026-01-01T12:00:00Z";

    #[test]
    fn the_schema_is_that_of_the_runners_that_serve() {
        let fine = cluster("False", "AsExpected");
        let two = |schema| [runner("a", "ready", Some(4), NOW), runner("b", "ready", schema, NOW)];
        assert_eq!(schema(Some(&fine), &two(Some(4))).unwrap(), "4, which all runners know");
        let upgrade = schema(Some(&fine), &two(Some(3))).unwrap();
        assert_eq!(upgrade, "4; 1 of 2 runners know an earlier one, as in an upgrade");
        assert!(schema(Some(&fine), &[runner("a", "ready", None, NOW)]).unwrap().contains("not known"));
        let (found, advice) = schema(Some(&fine), &[runner("a", "draining", Some(4), NOW)]).unwrap_err();
        assert!(found.contains("no runner") && advice.contains("ready"), "{found}: {advice}");
    }

    #[test]
    fn a_schema_that_runners_do_not_know_is_said_even_while_others_serve() {
        let (found, advice) =
            schema(Some(&cluster("True", "BinaryTooOld")), &[runner("a", "ready", Some(3), NOW)])
                .unwrap_err();
        assert!(found.contains("BinaryTooOld"), "{found}");
        assert_eq!(advice, "run a newer one");
        let other = cluster("True", "ImagePullFailed");
        assert!(
            schema(Some(&other), &[runner("a", "ready", Some(3), NOW)]).is_ok(),
            "that is not its concern"
        );
    }

    #[test]
    fn a_runner_that_no_longer_renews_is_named() {
        let now = at(NOW);
        let fresh = runner("a", "ready", None, "2026-01-01T11:59:55Z");
        let silent = runner("b", "ready", None, "2026-01-01T11:59:00Z");
        let gone = runner("c", "gone", None, "2026-01-01T11:00:00Z");
        assert!(leases(&[fresh.clone(), gone.clone()], now).is_ok());
        let (found, advice) = leases(&[fresh, silent, gone], now).unwrap_err();
        assert_eq!(found, "b has not renewed its Lease for 60s, which lasts 10s");
        assert!(advice.contains("kubectl get pod b"), "{advice}");
    }

    #[test]
    fn a_clock_that_is_ahead_is_said() {
        let now = at(NOW);
        assert!(clock(&[runner("a", "ready", None, "2026-01-01T12:00:03Z")], now).is_ok());
        let (found, advice) = clock(&[runner("a", "ready", None, "2026-01-01T12:00:30Z")], now).unwrap_err();
        assert!(found.contains("30s ahead") && advice.contains("time service"), "{found}: {advice}");
    }

    #[test]
    fn shards_without_an_owner_are_counted() {
        let fine = cluster("False", "AsExpected");
        let (a, b) = (runner("a", "ready", None, NOW), runner("b", "ready", None, NOW));
        assert_eq!(shards(Some(&fine), &[a.clone(), b]).unwrap(), "32 of 32 have an owner");
        assert_eq!(shards(Some(&fine), &[a]).unwrap_err().0, "16 of 32 have no owner");
    }

    #[test]
    fn a_finding_that_a_runner_reports_has_a_line_of_its_own() {
        let mut cluster = cluster("False", "AsExpected");
        assert_eq!(health(Some(&cluster))[0].1.as_deref().unwrap(), "no runner reports a finding");
        let conditions = &mut cluster.status.as_mut().unwrap().conditions;
        let condition = |type_: &str, status: &str| Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            message: "runner a: set the clock".to_owned(),
            ..conditions[0].clone()
        };
        let reported = [condition("ClockSkew", "True"), condition("NoIds", "False")];
        conditions.extend(reported);
        let lines = health(Some(&cluster));
        assert_eq!(lines.len(), 1);
        let (what, looked) = &lines[0];
        let (found, advice) = looked.as_ref().unwrap_err();
        assert_eq!((what.as_str(), advice.as_str()), ("ClockSkew", "runner a: set the clock"));
        assert!(found.contains("2026-01-01"), "{found}");
    }

    #[test]
    fn settings_of_the_database_that_lose_data_are_pointed_out() {
        let mut cluster = cluster("False", "AsExpected");
        assert!(database(Some(&cluster)).is_empty(), "no runner has said anything");
        let facts = &mut cluster.status.as_mut().unwrap().database;
        for (name, value) in [
            ("server_version", "16.4"),
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("data_sync_retry", "off"),
            ("data_checksums", "on"),
            ("max_connections", "100"),
            ("usable_connections", "97"),
            ("needed_connections", "92"),
            ("synchronous_commit", "on"),
            ("synchronous_standby_names", "*"),
            ("standbys", "1"),
        ] {
            facts.insert(name.to_owned(), value.to_owned());
        }
        let lines = |cluster: &Cluster| -> Vec<Looked> {
            database(Some(cluster)).into_iter().map(|(_, looked)| looked).collect()
        };
        let fine: Vec<String> = lines(&cluster).into_iter().map(Result::unwrap).collect();
        assert!(fine[0].contains("fsync on, full_page_writes on") && fine[2].contains("to *, 1 connected"));
        let facts = &mut cluster.status.as_mut().unwrap().database;
        facts.insert("fsync".to_owned(), "off".to_owned());
        facts.insert("needed_connections".to_owned(), "115".to_owned());
        let wrong: Vec<_> = lines(&cluster).into_iter().filter_map(Result::err).collect();
        assert!(wrong[0].1.contains("fsync = off") && wrong[1].1.contains("max_connections"), "{wrong:?}");
    }

    #[test]
    fn somebody_has_to_be_ready() {
        assert_eq!(runners(&[runner("a", "ready", None, NOW)]).unwrap(), "1 of 1 are ready");
        assert!(runners(&[runner("a", "draining", None, NOW)]).unwrap_err().1.contains("kubectl get pods"));
    }
}
