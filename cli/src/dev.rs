//! `cleat dev`: a platform in one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::Generator;
use cleat_runner::shard::Fence;
use cleat_runner::store::Store;
use cleat_runner::store::sqlite::{self, SqliteStore};

use crate::demo;

/// What `cleat dev` is told.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the data is kept.
    #[arg(long, value_name = "DIR", default_value = ".cleat")]
    data: PathBuf,
    /// Show what it does: an inventory that takes reservations.
    #[arg(long)]
    demo: bool,
    /// End after the demo instead of waiting for Ctrl-C.
    #[arg(long, requires = "demo")]
    exit: bool,
}

/// Runs until Ctrl-C, or until the demo has ended if that is all that is wanted.
pub async fn run(arguments: Arguments) -> Result<()> {
    let runner = Runner::start(&arguments.data).await?;
    println!("cleat: one runner on {}, serving {} shards", runner.file.display(), runner.shards);
    let shown = if arguments.demo { demo::run(&runner.host).await } else { Ok(()) };
    if shown.is_ok() && !arguments.exit {
        println!("cleat: running; Ctrl-C stops it, and the next start finds its data");
        tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")?;
    }
    runner.stop().await;
    shown
}

/// A runner that owns every shard of an embedded database.
struct Runner {
    host: Host,
    store: Arc<dyn Store>,
    file: PathBuf,
    shards: usize,
}

impl Runner {
    async fn start(data: &Path) -> Result<Self> {
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot make the folder {}", data.display()))?;
        let file = data.join("cleat.db");
        let options = sqlite::Options::file(&file);
        let store: Arc<dyn Store> = Arc::new(
            SqliteStore::open(options).await.with_context(|| format!("cannot open {}", file.display()))?,
        );
        let fences = claim_everything(store.as_ref()).await?;
        let ids = Arc::new(Generator::new(store.lease_machine().await?));
        let host = Host::new(Arc::clone(&store), ids, Options::default());
        host.open(&fences).await?;
        Ok(Self { host, store, file, shards: fences.len() })
    }

    async fn stop(self) {
        self.host.shutdown(Duration::from_secs(10)).await;
        self.store.close().await;
    }
}

/// Takes every shard from whoever had it. This process is the only one that uses the file, so nobody is there to ask.
async fn claim_everything(store: &dyn Store) -> Result<Vec<Fence>> {
    let mut fences = Vec::new();
    for map in store.maps() {
        for holding in store.holdings(map.group()).await? {
            fences.push(Fence { shard: holding.shard, epoch: holding.epoch.next() });
        }
    }
    for claim in store.claim(&fences).await? {
        claim.context("another process uses this folder: stop it, or choose another one with --data")?;
    }
    Ok(fences)
}
