//! Leases in Kubernetes, on the embedded API. `e2e/tests/end_to_end/leases.rs` runs the same suite against a real one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "lease_kubernetes/objects.rs"]
mod objects;
#[path = "lease_kubernetes/outages.rs"]
mod outages;
#[path = "lease_kubernetes/pods.rs"]
mod pods;
#[path = "lease_kubernetes/world.rs"]
#[allow(dead_code, reason = "the tests of whole runners need more")]
mod world;

mod conforms {
    use std::sync::Arc;

    use cleat_runner::lease::conformance::Subject;
    use cleat_runner::lease_conformance;

    use crate::world::World;

    lease_conformance!({
        let leases = World::new().await.leases();
        Subject { leases: Arc::new(leases.clone()), backstage: Arc::new(leases) }
    });
}
