//! The suites that the parts of Cleat pass in their own tests pass against a real API server, too.

use std::time::Instant;

use anyhow::{Result, ensure};
use cleat_conformance::{FILES, File, Server, Target};
use e2e::{ControlPlane, Options, progress};

/// What the embedded API is measured by is true of a real one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_of_the_embedded_api_are_those_of_a_real_server() -> Result<()> {
    let plane = ControlPlane::start(Options { controllers: true }).await?;
    let running = plane.running("the_cases_of_the_embedded_api_are_those_of_a_real_server")?;
    let server = Server::new(plane.client().await?, Target::Real);
    let (mut passed, mut failures) = (0, Vec::new());
    for (name, text) in FILES {
        let begun = Instant::now();
        let file = File::parse(text)?;
        let report = server.check(name, &file).await?;
        let count = file.cases.len();
        progress(format_args!(
            "{name}: {} of {count} cases equal after {:.1} s",
            report.passed,
            begun.elapsed().as_secs_f64()
        ));
        passed += report.passed;
        failures.extend(report.failures);
    }
    ensure!(
        failures.is_empty(),
        "{passed} cases passed; {} steps did not:\n{}",
        failures.len(),
        failures.join("\n")
    );
    progress(format_args!("{passed} cases, all equal"));
    running.passed();
    Ok(())
}
