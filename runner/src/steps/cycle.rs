//! Workflows that start each other without end.

use std::collections::BTreeSet;

use cleat_crds::Step;

use super::World;

/// The workflows that each execution of these steps starts: those behind a condition, and those for items that may not be there, do not
/// count.
pub(super) fn starts(steps: &[Step]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for step in steps.iter().filter(|step| step.when.is_none()) {
        found.extend(step.workflow.iter().map(|child| child.type_.clone()));
        for branch in step.parallel.iter().flatten() {
            found.extend(starts(&branch.steps.0));
        }
    }
    found
}

/// Whether a workflow that starts `first` comes back to itself, and through whom.
pub(super) fn back_to(own: &str, first: &str, world: &World) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![first.to_owned()]];
    while let Some(way) = ways.pop() {
        let Some(last) = way.last() else { continue };
        if last == own {
            return Some(way);
        }
        if !seen.insert(last.clone()) {
            continue;
        }
        let next = world.workflow(last).map(|workflow| &workflow.starts);
        ways.extend(next.into_iter().flatten().map(|next| {
            let mut longer = way.clone();
            longer.push(next.clone());
            longer
        }));
    }
    None
}
