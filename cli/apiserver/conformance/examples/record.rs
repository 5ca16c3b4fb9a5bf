//! Writes down what the server of the current kubeconfig answers: `record VERSION FILE...`.

use anyhow::{Context, Result};
use cleat_conformance::{File, Server, Target};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let version = arguments.next().context("the version of the server")?;
    let server = Server::new(kube::Client::try_default().await?, Target::Real);
    for path in arguments {
        let mut file = File::parse(&std::fs::read_to_string(&path)?).with_context(|| path.clone())?;
        server.record(&mut file).await.with_context(|| path.clone())?;
        std::fs::write(&path, file.render(&version))?;
        println!("{path}: {} cases", file.cases.len());
    }
    Ok(())
}
