//! `cleat doctor`: what is wrong, and what to do about it.

use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use cleat_crds::Cluster;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;

use super::runners::{self, Runner};
use crate::gateway::Gateway;
use crate::output::{self, Colour, Format, waiting};
use crate::target::{Platform, Target};

/// What one look has found.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    fine: bool,
    found: String,
    /// What to do, if something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// What was looked at.
type Looked = Result<String, (String, String)>;

/// Clocks that are further apart than this confuse people, though not runners.
const SKEW: Duration = Duration::from_secs(5);

/// Looks at everything and says what it found.
pub async fn run(target: &Target, format: Format) -> Result<()> {
    let platform = target.platform().await?;
    let findings = waiting("looking", look(target, &platform)).await;
    let wrong = findings.iter().filter(|finding| !finding.fine).count();
    format.print(&findings, |_| findings.iter().map(show).collect())?;
    if wrong > 0 {
        bail!("{wrong} of {} checks failed", findings.len());
    }
    Ok(())
}

async fn look(target: &Target, platform: &Platform) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |what, looked: Looked| {
        let (fine, found, advice) = match looked {
            Ok(found) => (true, found, None),
            Err((found, advice)) => (false, found, Some(advice)),
        };
        findings.push(Finding { what, fine, found, advice });
    };
    let server = api_server(platform).await;
    let reachable = server.is_ok();
    note("API server", server);
    if reachable {
        note("custom resources", definitions(platform).await);
        note("permissions", permissions(platform).await);
        note("Cluster", cluster(platform).await);
        match runners::list(platform).await {
            Ok(known) => {
                note("runners", alive(&known));
                note("clock", clock(&known));
                note("shards", shards(platform, &known).await);
            }
            Err(error) => {
                note("runners", Err((format!("{error:#}"), "see the permissions above".to_owned())))
            }
        }
        note("gateway", gateway(target).await);
    }
    findings
}

fn show(finding: &Finding) -> String {
    let mark = if finding.fine {
        output::colour("ok  ", Colour::Green)
    } else {
        output::colour("FAIL", Colour::Red)
    };
    let mut line = format!("{mark}  {}: {}\n", finding.what, finding.found);
    if let Some(advice) = &finding.advice {
        line.push_str(&format!("      {advice}\n"));
    }
    line
}

async fn api_server(platform: &Platform) -> Looked {
    match platform.client.apiserver_version().await {
        Ok(version) => Ok(version.git_version),
        Err(error) => Err((
            format!("it does not answer: {error}"),
            "start `cleat dev`, or check the kubeconfig with `kubectl version`".to_owned(),
        )),
    }
}

async fn definitions(platform: &Platform) -> Looked {
    let api: Api<CustomResourceDefinition> = Api::all(platform.client.clone());
    let mut missing = Vec::new();
    for plural in ["clusters", "entitytypes", "cronjobs", "workflowtypes", "workflows"] {
        match api.get_opt(&format!("{plural}.cleat.dev")).await {
            Ok(Some(_)) => {}
            Ok(None) => missing.push(plural),
            // Users need not be able to read definitions; whoever cannot list the objects finds out below.
            Err(_) => return Ok("not allowed to look, skipped".to_owned()),
        }
    }
    if missing.is_empty() {
        return Ok("all five kinds are installed".to_owned());
    }
    Err((
        format!("not installed: {}", missing.join(", ")),
        "install the chart: see docs/install.md".to_owned(),
    ))
}

/// What a user of Cleat does, as Kubernetes sees it.
const DEEDS: [(&str, &str, &str); 5] = [
    ("get", "cleat.dev", "clusters"),
    ("list", "cleat.dev", "entitytypes"),
    ("list", "coordination.k8s.io", "leases"),
    ("create", "cleat.dev", "workflows"),
    ("list", "cleat.dev", "workflows"),
];

async fn permissions(platform: &Platform) -> Looked {
    let api: Api<SelfSubjectAccessReview> = Api::all(platform.client.clone());
    let mut refused = Vec::new();
    for (verb, group, resource) in DEEDS {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(platform.namespace.clone()),
                    verb: Some(verb.to_owned()),
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        match api.create(&PostParams::default(), &review).await {
            Ok(review) if review.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => refused.push(format!("{verb} {resource}.{group}")),
            // The embedded API has one user, who may do everything.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 405 => {
                return Ok("this API server lets its one user do everything".to_owned());
            }
            Err(error) => return Err((error.to_string(), "ask again later".to_owned())),
        }
    }
    if refused.is_empty() {
        return Ok("all that a user needs".to_owned());
    }
    Err((
        format!("not allowed: {}", refused.join(", ")),
        format!("bind the ClusterRole cleat-starter or cleat-author in namespace {}", platform.namespace),
    ))
}

async fn cluster(platform: &Platform) -> Looked {
    let name = &platform.cluster;
    match platform.api::<Cluster>().get_opt(name).await {
        Ok(Some(cluster)) => {
            let conditions = cluster.status.map(|status| status.conditions).unwrap_or_default();
            match conditions.iter().find(|condition| condition.type_ == "Ready") {
                Some(condition) if condition.status == "True" => Ok(format!("{name} is ready")),
                Some(condition) => {
                    Err((format!("{name} is not ready: {}", condition.reason), condition.message.clone()))
                }
                None => Err((
                    format!("{name} was not looked at by any operator"),
                    "is the operator running? `kubectl get pods -A -l app.kubernetes.io/name=cleat`"
                        .to_owned(),
                )),
            }
        }
        Ok(None) => Err((
            format!("there is no Cluster {name} in namespace {}", platform.namespace),
            "create one (docs/install.md), or name another with --cluster and -n".to_owned(),
        )),
        Err(error) => Err((error.to_string(), "see the permissions above".to_owned())),
    }
}

fn alive(runners: &[Runner]) -> Looked {
    let ready = runners.iter().filter(|runner| runner.state == "ready").count();
    if ready > 0 {
        return Ok(format!("{ready} of {} are ready", runners.len()));
    }
    Err((
        format!("none of {} is ready", runners.len()),
        "look at their pods: `kubectl get pods -l app.kubernetes.io/name=cleat-runner` and their logs"
            .to_owned(),
    ))
}

/// Runners renew with their own clocks: if a renewal lies in the future, one of the clocks is wrong.
fn clock(runners: &[Runner]) -> Looked {
    let now = SystemTime::now();
    let renewed = |runner: &Runner| {
        let time = chrono::DateTime::parse_from_rfc3339(runner.renewed.as_deref()?).ok()?;
        SystemTime::from(time).duration_since(now).ok()
    };
    let ahead = runners.iter().filter_map(renewed).max().unwrap_or_default();
    if ahead <= SKEW {
        return Ok("runners' clocks agree with this one".to_owned());
    }
    Err((
        format!("a runner's clock is {ahead:?} ahead of this one"),
        "nothing is lost by that, but schedules are off: check the time service of the nodes".to_owned(),
    ))
}

async fn shards(platform: &Platform, runners: &[Runner]) -> Looked {
    let total = match platform.api::<Cluster>().get_opt(&platform.cluster).await {
        Ok(Some(cluster)) => {
            let groups: i32 = cluster.spec.shard_groups.iter().map(|group| group.shards).sum();
            usize::try_from(cluster.spec.shards + groups).unwrap_or(0)
        }
        _ => 0,
    };
    let owned: usize =
        runners.iter().filter(|runner| runner.state != "gone").map(|runner| runner.shards).sum();
    if owned >= total {
        return Ok(format!("{owned} of {total} have an owner"));
    }
    Err((
        format!("{} of {total} have no owner", total - owned),
        "if it stays so for longer than a lease, look at the runners' logs; `cleat shards` draws them"
            .to_owned(),
    ))
}

async fn gateway(target: &Target) -> Looked {
    let ready = async { Gateway::find(target).await?.is_ready().await };
    match ready.await {
        Ok(()) => Ok("it answers".to_owned()),
        Err(error) => Err((
            format!("{error:#}"),
            "may you create pods/portforward? Otherwise expose the Service and pass --gateway".to_owned(),
        )),
    }
}
