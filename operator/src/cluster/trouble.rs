//! Why pods do not run, as a person would find out.

use cleat_runner::runner::reason;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::names::{CONTAINER, annotation};

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

/// How the database of a Cluster that is gone is taken over, if that is what runners ask for: with its UID, which only they know.
fn adoption(words: &str) -> Option<&str> {
    let asked = &words[words.find(annotation::ADOPT)?..];
    let end = asked.find(|c: char| !c.is_ascii_alphanumeric() && !"./-=".contains(c));
    Some(&asked[..end.unwrap_or(asked.len())])
}

/// A runner that ends by itself says why in its last words.
fn crashed(pod: &Pod, status: &ContainerStatus) -> Trouble {
    let now = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let terminated = now.or_else(|| status.last_state.as_ref().and_then(|state| state.terminated.as_ref()));
    let words = terminated.and_then(|terminated| terminated.message.as_deref()).unwrap_or_default();
    if let Some((reason, advice)) = LAST_WORDS.iter().find(|(reason, _)| words.contains(reason)) {
        let otherwise = adoption(words).map(|annotation| {
            format!("; if that one is gone, take it over with the annotation {annotation}")
        });
        let message = format!("{advice}{}", otherwise.unwrap_or_default());
        return Trouble { reason: (*reason).to_owned(), message };
    }
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let message = format!("pod {} ended {} times: {last}", pod.name_any(), status.restart_count.max(1));
    Trouble { reason: "RunnersFailing".into(), message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_database_that_can_be_taken_over_comes_with_the_annotation_for_it() {
        let owner = "6f1c-9a".to_owned();
        let in_use = cleat_runner::runner::Error::Store(cleat_runner::store::Error::DatabaseInUse { owner });
        let words = json!({"fields": {"message": crate::error::chain(&in_use), "reason": in_use.reason()}});
        let ended = json!({"terminated": {"exitCode": 1, "message": words.to_string()}});
        let status = json!({"name": CONTAINER, "image": "x:1", "imageID": "", "ready": false, "restartCount": 1, "state": ended});
        let pod = json!({"metadata": {"name": "a"}, "status": {"containerStatuses": [status]}});
        let found = find(&[serde_json::from_value(pod).unwrap()]).unwrap();
        assert_eq!(found.reason, "DatabaseInUse");
        assert!(found.message.ends_with(" cleat.dev/adopt-database=6f1c-9a"), "{}", found.message);
    }
}
