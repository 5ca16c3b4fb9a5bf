//! `cleat entities`: which types of entity there are.

use anyhow::Result;
use cleat_crds::EntityType;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::output::{self, Format, Table, waiting};
use crate::target::Target;

/// Shows the types of entity of a Cluster.
pub async fn run(target: &Target, format: Format) -> Result<()> {
    let platform = target.platform().await?;
    let (api, all) = (platform.api::<EntityType>(), ListParams::default());
    let types = waiting("asking the API server", api.list(&all)).await;
    let mut types = types.map_err(|error| platform.unreachable(error))?.items;
    types.retain(|entity| entity.spec.cluster_ref.name == platform.cluster);
    format.print(&types, |_| {
        let mut table = Table::new(&["NAME", "HANDLER", "METHODS", "ACTIVE", "RUNNERS", "READY", "MESSAGE"]);
        for entity in &types {
            let status = entity.status.clone().unwrap_or_default();
            let (ready, message) = ready(&status.conditions);
            table.row([
                entity.name_any(),
                status.handler.unwrap_or_else(|| "-".to_owned()),
                entity.spec.methods.iter().map(|method| method.name.as_str()).collect::<Vec<_>>().join(","),
                status.active.to_string(),
                status.runners.to_string(),
                ready,
                message,
            ]);
        }
        if table.is_empty() {
            format!("Cluster {} has no types of entity: `kubectl apply` an EntityType\n", platform.cluster)
        } else {
            table.render()
        }
    })
}

/// Whether something is ready, and if not, why.
pub fn ready(conditions: &[Condition]) -> (String, String) {
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(condition) if condition.status == "True" => {
            (output::colour("True", output::Colour::Green), String::new())
        }
        Some(condition) => (
            output::colour(&condition.status, output::Colour::Red),
            format!("{}: {}", condition.reason, condition.message),
        ),
        None => ("Unknown".to_owned(), "the operator has not looked at it yet".to_owned()),
    }
}
