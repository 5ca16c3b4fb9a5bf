//! Why pods do not run, as a person would find out.

use cleat_runner::runner::reason;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::names::CONTAINER;

/// Something that a person has to do something about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: String,
    /// What it is, and what to do.
    pub message: String,
}

/// What runners say when they give up, and what to do about it.
const LAST_WORDS: [(&str, &str); 5] = [
    (reason::DATABASE_IN_USE, "another Cluster uses this database: give each Cluster one of its own"),
    (
        reason::DATABASE_UNAVAILABLE,
        "runners cannot reach the database: check the URL in the Secret, and the database itself",
    ),
    (
        reason::DATABASE_REFUSED,
        "the database does not let runners in: check user, password and rights, and the URL in the Secret",
    ),
    (reason::BINARY_TOO_OLD, "the database was used by a newer release: run that one, or a newer one"),
    (
        reason::NOT_ALLOWED,
        "runners may not do what they have to in Kubernetes: see their logs for the Role to change",
    ),
];

/// The first trouble that pods tell of.
pub fn find(pods: &[Pod]) -> Option<Trouble> {
    let going = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none();
    pods.iter().filter(going).find_map(|pod| unscheduled(pod).or_else(|| container(pod)))
}

fn unscheduled(pod: &Pod) -> Option<Trouble> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    let message = condition.message.clone().unwrap_or_default();
    Some(Trouble {
        reason: "Unschedulable".into(),
        message: format!("no node takes pod {}: {message}", pod.name_any()),
    })
}

fn container(pod: &Pod) -> Option<Trouble> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|status| status.name == CONTAINER)?;
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let (reason, message) = (waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default());
        return match reason {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => Some(Trouble {
                reason: "ImagePullFailed".into(),
                message: format!("image {} cannot be pulled: {message}", status.image),
            }),
            "CrashLoopBackOff" => Some(crashed(pod, status)),
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                Some(Trouble { reason: reason.into(), message: format!("pod {}: {message}", pod.name_any()) })
            }
            _ => None,
        };
    }
    let ended = state.terminated.as_ref().is_some_and(|terminated| terminated.exit_code != 0);
    ended.then(|| crashed(pod, status))
}

/// A runner that ends by itself says why in its last words.
fn crashed(pod: &Pod, status: &ContainerStatus) -> Trouble {
    let now = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let terminated = now.or_else(|| status.last_state.as_ref().and_then(|state| state.terminated.as_ref()));
    let words = terminated.and_then(|terminated| terminated.message.as_deref()).unwrap_or_default();
    if let Some((reason, advice)) = LAST_WORDS.iter().find(|(reason, _)| words.contains(reason)) {
        return Trouble { reason: (*reason).to_owned(), message: (*advice).to_owned() };
    }
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let message = format!("pod {} ended {} times: {last}", pod.name_any(), status.restart_count.max(1));
    Trouble { reason: "RunnersFailing".into(), message }
}
