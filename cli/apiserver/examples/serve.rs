//! Serves an empty Kubernetes API until it is interrupted: `serve KUBECONFIG [STATE.db]`.

use cleat_apiserver::store::Sqlite;
use cleat_apiserver::{Options, start};
use std::path::PathBuf;
use std::sync::Arc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let mut options = Options { kubeconfig: arguments.next(), ..Options::default() };
    if let Some(file) = arguments.next() {
        options.backend = Arc::new(Sqlite::open(&file).await?);
    }
    let server = start(options).await?;
    println!("{}", server.url());
    tokio::signal::ctrl_c().await?;
    server.shutdown().await;
    Ok(())
}
