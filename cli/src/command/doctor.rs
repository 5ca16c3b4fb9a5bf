//! `cleat doctor`: what is wrong, and what to do about it.

mod verdict;

use std::time::SystemTime;

use anyhow::{Result, bail};
use cleat_crds::Cluster;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;

use super::runners;
use crate::gateway::Gateway;
use crate::output::{self, Colour, Format, waiting};
use crate::target::{Platform, Target};

/// What one look has found.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    fine: bool,
    found: String,
    /// What to do, if something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// What was looked at: what was found, and what to do if that is not good.
type Looked = Result<String, (String, String)>;

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
    let mut note = |what: &str, looked: Looked| {
        let (fine, found, advice) = match looked {
            Ok(found) => (true, found, None),
            Err((found, advice)) => (false, found, Some(advice)),
        };
        findings.push(Finding { what: what.to_owned(), fine, found, advice });
    };
    let server = api_server(platform).await;
    let reachable = server.is_ok();
    note("API server", server);
    if reachable {
        note("custom resources", definitions(platform).await);
        note("permissions", permissions(platform).await);
        let cluster = platform.api::<Cluster>().get_opt(&platform.cluster).await;
        note("Cluster", verdict::cluster(platform, &cluster));
        let cluster = cluster.ok().flatten();
        for (what, looked) in verdict::health(cluster.as_ref()) {
            note(&what, looked);
        }
        for (what, looked) in verdict::database(cluster.as_ref()) {
            note(what, looked);
        }
        match runners::list(platform).await {
            Ok(known) => {
                let now = SystemTime::now();
                note("runners", verdict::runners(&known));
                note("leases", verdict::leases(&known, now));
                note("clock", verdict::clock(&known, now));
                note("shards", verdict::shards(cluster.as_ref(), &known));
                note("schema", verdict::schema(cluster.as_ref(), &known));
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
