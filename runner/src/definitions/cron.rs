//! CronJobs as crons.

use cleat_cel::{Bindings, Budget, Env, Template};
use cleat_crds::cron_job::{CatchUpPolicy, ConcurrencyPolicy, CronJobSpec, Target};
use serde_json::Value as Json;

use super::{Fault, Faults};
use crate::cron::{CatchUp, Concurrency, Cron, InvalidSchedule, Policy, Schedule, Task};
use crate::message::{EntityAddress, EntityType, codec};

/// The cron that a spec describes.
pub(super) fn cron(name: &str, spec: &CronJobSpec) -> Result<Cron, Vec<Fault>> {
    let mut faults = Faults::default();
    let schedule = schedule(spec, &mut faults);
    let task = task(&spec.target, &mut faults);
    if let (Some(schedule), Some(task), true) = (schedule, task, faults.is_empty()) {
        let concurrency = match spec.concurrency_policy {
            ConcurrencyPolicy::Allow => Concurrency::Allow,
            ConcurrencyPolicy::Forbid => Concurrency::Forbid,
            ConcurrencyPolicy::Replace => Concurrency::Replace,
            ConcurrencyPolicy::BufferOne => Concurrency::BufferOne,
        };
        return Ok(Cron::tracked(name, schedule, task, concurrency)
            .catch_up(catch_up(spec))
            .suspended(spec.suspend));
    }
    Err(faults.into_list())
}

fn schedule(spec: &CronJobSpec, faults: &mut Faults) -> Option<Schedule> {
    let schedule = Schedule::new(&spec.schedule)
        .map_err(|error| faults.add("spec.schedule", "InvalidSchedule", error.to_string()))
        .ok()?;
    let zoned = schedule.in_zone(&spec.time_zone);
    zoned
        .map_err(|error: InvalidSchedule| faults.add("spec.timeZone", "InvalidTimeZone", error.to_string()))
        .ok()
}

fn catch_up(spec: &CronJobSpec) -> CatchUp {
    let window = spec.catch_up.window.get();
    CatchUp {
        policy: match spec.catch_up.policy {
            CatchUpPolicy::None => Policy::None,
            CatchUpPolicy::Latest => Policy::Latest,
            CatchUpPolicy::All => Policy::All,
        },
        window: spec.skip_if_older_than.map_or(window, |older| window.min(older.get())),
    }
}

fn task(target: &Target, faults: &mut Faults) -> Option<Task> {
    match target {
        Target::Call(call) => {
            let path = "spec.target.call";
            let id = text(&format!("{path}.id"), &call.id, faults);
            let input = value(&format!("{path}.input"), call.input.as_ref().map(|input| &input.0), faults);
            let address = EntityAddress::new(&call.entity, &id?)
                .map_err(|error| faults.add(path, "InvalidAddress", error.to_string()))
                .ok()?;
            Some(Task::Call { address, method: call.method.clone(), input: input? })
        }
        Target::Workflow(start) => {
            let input = start.input.as_ref().map(|input| &input.0);
            let input = value("spec.target.workflow.input", input, faults);
            EntityType::new(&start.type_)
                .map_err(|error| faults.add("spec.target.workflow.type", "InvalidAddress", error.to_string()))
                .ok()?;
            Some(Task::Workflow { workflow: start.type_.clone(), input: input? })
        }
    }
}

/// A value with its expressions evaluated. They have nothing to refer to: each tick gives the same.
fn plain(path: &str, json: &Json, faults: &mut Faults) -> Option<Json> {
    let template = Template::compile(json, &Env::new())
        .map_err(|found| faults.template(path, "there are no variables here", json, &found))
        .ok()?;
    template
        .evaluate(&Bindings::new(), &mut Budget::default())
        .map_err(|error| faults.add(path, "InvalidExpression", error.to_string()))
        .ok()
}

fn text(path: &str, text: &str, faults: &mut Faults) -> Option<String> {
    match plain(path, &Json::from(text), faults)? {
        Json::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

fn value(path: &str, json: Option<&Json>, faults: &mut Faults) -> Option<bytes::Bytes> {
    let value = plain(path, json.unwrap_or(&Json::Null), faults)?;
    codec::encode(&value)
        .map(Into::into)
        .map_err(|error| faults.add(path, "Malformed", error.to_string()))
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(spec: Json) -> Vec<(String, &'static str)> {
        let spec: CronJobSpec = serde_json::from_value(spec).unwrap();
        let faults = cron("nightly", &spec).err().unwrap_or_default();
        faults.into_iter().map(|fault| (fault.path, fault.reason)).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let call = json!({"call": {"entity": "inventory", "id": "apples", "method": "restock", "input": {"count": 100}}});
        assert_eq!(faults(json!({"schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "target": call})), []);
        let wrong = json!({"call": {"entity": "inventory", "id": "${input.id}", "method": "restock", "input": "${1 +}"}});
        assert_eq!(
            faults(json!({"schedule": "0 25 * * *", "target": wrong})),
            [
                ("spec.schedule".to_owned(), "InvalidSchedule"),
                ("spec.target.call.id".to_owned(), "UnknownField"),
                ("spec.target.call.input".to_owned(), "InvalidExpression"),
            ]
        );
        let workflow = json!({"workflow": {"type": "order"}});
        assert_eq!(
            faults(json!({"schedule": "@daily", "timeZone": "Europe/Atlantis", "target": workflow})),
            [("spec.timeZone".to_owned(), "InvalidTimeZone")]
        );
    }
}
