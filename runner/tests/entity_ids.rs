//! A host never runs out of ids while its database is there.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::{Generator, Span, Tick};
use cleat_runner::store::Store;
use cleat_runner::store::sqlite::{self, SqliteStore};

#[tokio::test]
async fn the_lease_on_a_machine_number_is_prolonged_before_it_runs_out() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(sqlite::Options::memory()).await.unwrap());
    let leased = store.lease_machine().await.unwrap();
    // As if the lease were about to end.
    let end = Tick::at(SystemTime::now() + Duration::from_millis(100));
    let ids = Arc::new(Generator::new(Span { until: end, ..leased }));
    let often = Options { machine_renewal: Duration::from_millis(10), ..Options::default() };
    let host = Host::new(store, Arc::clone(&ids), often);
    let later = SystemTime::now() + Duration::from_secs(1800);
    let renewed = async {
        while ids.next_at(later).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), renewed).await.unwrap();
    host.shutdown(Duration::ZERO).await;
}
