//! Requests to a Kubernetes API and the answers that a real one gives, to be asked of any other.
//!
//! A file of cases has a `setup`, a list of CustomResourceDefinitions that are made before and removed after, and
//! `cases`, each a `name` and `steps`. A step is one request:
//!
//! | key | meaning |
//! | --- | --- |
//! | `do` | method and path |
//! | `send`, `text` | the body, as JSON or verbatim |
//! | `type`, `accept` | its media type and the one of the answer; `application/json` unless said otherwise |
//! | `code`, `answer` | what must come back; without `answer` only the code counts |
//! | `names` | only the names of the items of a list count |
//! | `watch` | read so many events of a watch, and compare those |
//! | `save` | names for values of the answer, by path; later steps write them as `${name}` |
//! | `until` | the request is repeated until it gives this code, for what happens in the background |
//! | `settle` | a request that is repeated after the step until it is refused |
//! | `differs` | why the embedded server answers otherwise; its answer is not compared, its code is |
//! | `beside` | what runs beside a real server (controllers, admission) and adds to the answer, which is not compared there |
//!
//! Answers are compared without what differs from run to run: identities, versions and times are left out, ages and saved
//! values stand as names. See [`normal`].

mod case;
pub mod normal;
mod run;

pub use case::{Case, File, Step};
pub use run::{Report, Server, Target};

/// All files of cases, by name.
pub const FILES: &[(&str, &str)] = &[
    ("apply", include_str!("../../tests/cases/apply.yaml")),
    ("builtins", include_str!("../../tests/cases/builtins.yaml")),
    ("builtin", include_str!("../../tests/cases/builtin.yaml")),
    ("cel", include_str!("../../tests/cases/cel.yaml")),
    ("costs", include_str!("../../tests/cases/costs.yaml")),
    ("definitions", include_str!("../../tests/cases/definitions.yaml")),
    ("deployments", include_str!("../../tests/cases/deployments.yaml")),
    ("kubectl", include_str!("../../tests/cases/kubectl.yaml")),
    ("patches", include_str!("../../tests/cases/patches.yaml")),
    ("ratcheting", include_str!("../../tests/cases/ratcheting.yaml")),
    ("rules", include_str!("../../tests/cases/rules.yaml")),
    ("schemas", include_str!("../../tests/cases/schemas.yaml")),
    ("selectors", include_str!("../../tests/cases/selectors.yaml")),
    ("sequences", include_str!("../../tests/cases/sequences.yaml")),
    ("shapes", include_str!("../../tests/cases/shapes.yaml")),
    ("verbs", include_str!("../../tests/cases/verbs.yaml")),
    ("validation", include_str!("../../tests/cases/validation.yaml")),
];
