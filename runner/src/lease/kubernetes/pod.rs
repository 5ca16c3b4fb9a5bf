//! What a Pod says about the process in it.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::jiff::Timestamp;

use super::record::Binding;
use crate::lease::Event;

/// The container that a runner runs in, if the pod has several.
const CONTAINER: &str = "runner";

/// What is known of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Standing {
    /// It was asked to stop.
    leaving: bool,
    /// Its container does not run, and last ran from then to then.
    ended: Option<(Timestamp, Timestamp)>,
}

impl Standing {
    /// Reads a pod. That it is gone or called failed says nothing: on a node that nobody hears of it may still run. Only whoever runs
    /// its container can say that it has ended.
    pub(super) fn of(pod: &Pod) -> Self {
        let leaving = pod.metadata.deletion_timestamp.is_some();
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        let statuses = statuses.unwrap_or_default();
        let status = match statuses {
            [only] => Some(only),
            several => several.iter().find(|status| status.name == CONTAINER),
        };
        let terminated = status.and_then(|status| {
            let state = status.state.as_ref()?;
            let before = || status.last_state.as_ref()?.terminated.as_ref();
            match (&state.terminated, &state.waiting) {
                (Some(terminated), _) => Some(terminated),
                (None, Some(_)) => before(),
                (None, None) => None,
            }
        });
        Self { leaving, ended: terminated.and_then(times) }
    }

    /// What this means for an instance in that pod.
    pub(super) fn events(&self, binding: &Binding) -> impl Iterator<Item = Event> {
        // Both are times of the same node. Those of the container are cut to the second, so whoever began in the last one may
        // be its successor.
        let ended = self.ended.is_some_and(|(from, to)| from <= binding.started && binding.started < to);
        let event = if ended {
            Some(Event::Terminated(binding.instance.clone()))
        } else {
            self.leaving.then(|| Event::Leaving(binding.instance.clone()))
        };
        event.into_iter()
    }
}

fn times(terminated: &ContainerStateTerminated) -> Option<(Timestamp, Timestamp)> {
    Some((terminated.started_at.as_ref()?.0, terminated.finished_at.as_ref()?.0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::shard::Instance;

    fn pod(containers: Value, deleted: bool) -> Standing {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "uid": "u" },
            "status": { "phase": "Failed", "containerStatuses": containers },
        });
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Standing::of(&serde_json::from_value(pod).unwrap())
    }

    fn container(name: &str, state: Value, last: Value) -> Value {
        json!({ "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state, "lastState": last })
    }

    fn ended(from: u32, to: u32) -> Value {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        json!({ "terminated": { "exitCode": 137, "startedAt": at(from), "finishedAt": at(to) } })
    }

    /// An instance that began at that second of the same minute.
    fn events(standing: &Standing, started: &str) -> Vec<Event> {
        let started = format!("2026-01-01T00:00:{started}Z").parse().unwrap();
        let binding = Binding { instance: Instance::new("u-1"), pod_uid: "u".to_owned(), started };
        standing.events(&binding).collect()
    }

    fn terminated() -> Vec<Event> {
        vec![Event::Terminated(Instance::new("u-1"))]
    }

    #[test]
    fn a_container_that_has_ended_ends_the_instance_in_it() {
        let standing = pod(json!([container("x", ended(10, 20), json!({}))]), false);
        assert_eq!(events(&standing, "10.5"), terminated());
        assert_eq!(events(&standing, "09.9"), [], "that one was in an earlier container");
        assert_eq!(events(&standing, "20.2"), [], "that one may be in a later one");
    }

    #[test]
    fn one_that_waits_to_be_started_again_has_ended_and_one_that_runs_again_proves_nothing() {
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let standing = pod(json!([container("x", waiting, ended(10, 20))]), false);
        assert_eq!(events(&standing, "10.5"), terminated());
        let running = json!({ "running": { "startedAt": "2026-01-01T00:00:20Z" } });
        let standing = pod(json!([container("x", running, ended(10, 20))]), false);
        assert_eq!(events(&standing, "10.5"), [], "its successor takes its Lease");
    }

    #[test]
    fn of_several_containers_the_runner_counts() {
        let running = json!({ "running": { "startedAt": "2026-01-01T00:00:10Z" } });
        let sidecar = container("mesh", ended(10, 20), json!({}));
        let standing = pod(json!([sidecar, container("runner", running, json!({}))]), false);
        assert_eq!(events(&standing, "10.5"), []);
        let standing = pod(json!([sidecar, container("runner", ended(10, 30), json!({}))]), false);
        assert_eq!(events(&standing, "25.0"), terminated());
    }

    #[test]
    fn a_deletion_is_a_request_and_a_phase_is_nothing() {
        assert_eq!(events(&pod(json!([]), false), "10"), []);
        assert_eq!(events(&pod(json!([]), true), "10"), [Event::Leaving(Instance::new("u-1"))]);
    }
}
