//! The store on PostgreSQL.

mod backend;
mod barrier;
mod batch;
mod claim;
mod columns;
mod connect;
mod diagnosis;
mod exclusive;
mod executions;
mod fences;
mod groups;
mod holds;
mod limits;
mod lineage;
mod listen;
mod lone;
mod machine;
mod migrate;
mod monitor;
mod notices;
mod partitions;
mod patience;
mod pooler;
mod reads;
mod retain;
mod self_test;
mod sessions;
mod setup;
mod states;
mod trail;
mod transaction;
mod workflows;
mod writer;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::Connection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::barrier::Durability;
use self::connect::{Identity, Target, unavailable};
use self::exclusive::Exclusive;
use self::groups::Groups;
pub(super) use self::monitor::HOLDERS;
pub use self::monitor::Options as MonitorOptions;
use self::patience::{Patience, silence};
use self::retain::Retainer;
use self::states::States;
pub(super) use self::transaction::Transaction;
use self::transaction::Transactions;
use self::writer::Writer;
use super::lane::Lanes;
use super::{
    Cursor, DeadLetter, Error, Filter, Hold, Holding, LaneOptions, Metrics, MigrationProgress, Page,
    Progress, Receipt, Retention, State, Store, Stored, StoredExecution, Tally, Timer, Wake, Watermark,
    Write,
};
use crate::clock::{DatabaseClock, wall};
use crate::health::{Health, Reason};
use crate::message::snowflake::{LeasedSpan, Machine, Span};
use crate::message::{Chunk, EntityAddress, EntityType, IdempotencyKey, Sequence, Snowflake};
use crate::shard::{Fence, GroupName, Instance, ShardId, ShardMap};

/// How to open a PostgreSQL store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the database is: `postgres://user:password@host:port/database`.
    pub url: String,
    /// Who opens it. No two processes may share one.
    pub instance: Instance,
    /// The UID of the Cluster, for which the database is reserved when it is first opened with one.
    pub cluster: Option<String>,
    /// The UID of a Cluster that is gone, whose database this one takes over.
    pub adopts: Option<String>,
    /// Groups that are created if they are not there. The number of shards that is recorded wins.
    pub groups: Vec<(GroupName, u16)>,
    /// How group commit is tuned.
    pub lanes: LaneOptions,
    /// The most connections for reads. Group commit has one more for each lane, claims and waking have one each.
    pub connections: u32,
    /// The most transactions of users at once. Each has a connection of its own, which is opened when it is first needed and closed
    /// when it was not for ten minutes. Those that commit at the same time share a flush of the log, so more are faster, up to
    /// some dozens. With the defaults four runners, that is three and one more during a rolling update, fit on a server that takes 100
    /// connections, as PostgreSQL does by default: see [`most_connections`](Self::most_connections).
    pub transactions: u32,
    /// How long a transaction waits for a connection of that pool.
    pub transaction_wait: Duration,
    /// How long a user's transaction may be open without a statement. The server ends it then.
    pub transaction_idle: Duration,
    /// How long a user's transaction may take, and each of its statements. A statement may take at least twice `patience`, so that
    /// no commit is canceled for which somebody still waits.
    pub transaction_timeout: Duration,
    /// How long a write goes on trying while the database is in trouble.
    pub patience: Duration,
    /// Whether writes are refused while `synchronous_standby_names` is empty. Each commit costs one more round trip then.
    pub require_synchronous_replication: bool,
    /// Where measurements go.
    pub metrics: Option<Metrics>,
    /// Where health findings are reported.
    pub health: Health,
    /// Receives how far a migration of the schema has come; none while there is nothing to migrate.
    pub progress: Option<watch::Sender<Option<MigrationProgress>>>,
    /// How the database is monitored.
    pub monitor: MonitorOptions,
}

impl Options {
    /// The defaults for a database and an instance: one group of 300 shards.
    pub fn new(url: impl Into<String>, instance: Instance) -> Self {
        Self {
            url: url.into(),
            instance,
            cluster: None,
            adopts: None,
            groups: vec![(GroupName::default(), ShardMap::DEFAULT_SHARDS)],
            lanes: LaneOptions::default(),
            connections: 7,
            transactions: 11,
            transaction_wait: Duration::from_secs(10),
            transaction_idle: Duration::from_secs(60),
            transaction_timeout: Duration::from_secs(300),
            patience: Duration::from_secs(30),
            require_synchronous_replication: false,
            metrics: None,
            health: Health::default(),
            progress: None,
            monitor: MonitorOptions::default(),
        }
    }

    /// The most connections that a store with these options opens: for reads, for each lane, for wakes, for claims, for the recovery of
    /// lost commits, and for transactions of users.
    pub fn most_connections(&self) -> u32 {
        let lanes = u32::try_from(self.lanes.lanes.max(1)).unwrap_or(u32::MAX);
        self.connections.saturating_add(lanes).saturating_add(3).saturating_add(self.transactions.max(1))
    }
}

/// How long a connection may take to show that it is fit for the next user.
const RETURN: Duration = Duration::from_secs(5);

/// A store on PostgreSQL.
pub struct PostgresStore {
    target: Target,
    /// Whose database it was when it was opened.
    cluster: Option<String>,
    pool: PgPool,
    claims: Exclusive,
    states: Arc<States>,
    groups: Arc<Groups>,
    maps: Vec<ShardMap>,
    lanes: Lanes,
    transactions: Transactions,
    wakes: broadcast::Sender<Wake>,
    listener: JoinHandle<()>,
    monitor: JoinHandle<()>,
    watch: JoinHandle<()>,
    patience: Duration,
    retainer: Retainer,
    clock: DatabaseClock,
}

impl PostgresStore {
    /// Opens the database: brings its schema up to date, checks whose it is, and starts to write and to listen.
    ///
    /// # Errors
    /// [`Error::TooOld`], [`Error::DatabaseInUse`], or that the database cannot be reached.
    pub async fn open(options: Options) -> Result<Self, Error> {
        let identity = Identity::new(options.instance.clone());
        let durability = match options.require_synchronous_replication {
            true => Durability::Synchronous,
            false => Durability::AsConfigured,
        };
        let target = Target::new(&options.url, identity, options.health.clone(), durability)?;
        let readers = (Arc::clone(&target.lineage), Arc::new(Exclusive::new(&target, "barrier")));
        let pool = PgPoolOptions::new()
            .max_connections(options.connections)
            .acquire_timeout(options.patience)
            // Tested when it comes back instead, and in vain for a while only: one that the network has swallowed would keep its
            // place in the pool for as long as the system retries.
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                let (lineage, barriers) = readers.clone();
                Box::pin(async move {
                    connect::durable(connection).await?;
                    lineage.admit(connection, &barriers).await
                })
            })
            .after_release(|connection, _| {
                Box::pin(async move {
                    let ping = tokio::time::timeout(RETURN, connection.ping()).await;
                    ping.unwrap_or_else(|_| Err(silence())).map(|()| true)
                })
            })
            // Opened once the schema is up to date: a migration closes connections that know the old one.
            .connect_lazy_with(target.options("pool"));
        let tested = self_test::run(&target, options.patience).await;
        if let Err(error @ Error::Unsupported(_)) = &tested {
            options.health.report(Reason::DatabaseUnsupported, error.to_string());
        }
        tested?;
        let whose = (options.cluster.as_deref(), options.adopts.as_deref());
        let clock = DatabaseClock::new(wall());
        let prepared = setup::prepare(&pool, &clock, whose, &options.groups, options.progress.as_ref());
        let groups = Arc::new(prepared.await?);
        let maps = groups.iter().map(|group| group.map.clone()).collect();
        let writers = (0..options.lanes.lanes.max(1))
            .map(|lane| Writer::new(target.clone(), Arc::clone(&groups), lane, options.patience))
            .collect();
        let supervisor = options.health.supervisor();
        let monitor = monitor::start(&pool, &target, &options);
        let transactions = Transactions::new(&target, &groups, &pool, &options);
        let lanes = Lanes::start(writers, options.lanes, options.metrics, &supervisor);
        let (wakes, _) = broadcast::channel(1024);
        let (first, listening) = oneshot::channel();
        let listening_task = listen::run(target.clone(), Arc::clone(&groups), wakes.clone(), first);
        // It is aborted when the store is closed.
        let listener = supervisor.spawn("wake listener", &CancellationToken::new(), listening_task);
        let watching = lineage::watch(Arc::clone(&target.lineage), pool.clone());
        let watch = supervisor.spawn("database watch", &CancellationToken::new(), watching);
        let (cluster, patience) = (options.cluster, options.patience);
        let states = States::new(pool.clone(), patience);
        let claims = Exclusive::new(&target, "claims");
        let store = Self {
            target,
            cluster,
            pool,
            claims,
            states,
            groups,
            maps,
            lanes,
            transactions,
            wakes,
            listener,
            monitor,
            watch,
            patience,
            retainer: Retainer::default(),
            clock,
        };
        // Whoever has a store misses no wake from then on.
        tokio::time::timeout(options.patience, listening)
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| unavailable(sqlx::Error::PoolTimedOut))?;
        Ok(store)
    }
}

impl PostgresStore {
    /// Makes new connections go there: the password has changed, or the server has moved. It has to be the same database. Those that are
    /// open stay until they end by themselves.
    ///
    /// # Errors
    /// [`Error::Rejected`] if it is not the URL of a PostgreSQL database. Then nothing changes.
    pub fn move_to(&self, url: &str) -> Result<(), Error> {
        self.target.move_to(url)?;
        self.pool.set_connect_options(self.target.options("pool"));
        Ok(())
    }

    /// For reads and everything else that may be done twice: goes on while the database is in trouble.
    fn patiently(&self) -> Patient<'_> {
        Patient(self)
    }
}

/// What is done with patience, as long as the database is the one that this process began with.
struct Patient<'a>(&'a PostgresStore);

impl Patient<'_> {
    async fn through<T, F>(self, operation: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let done = Patience::new(self.0.patience).through(operation);
        self.0.target.lineage.during(done).await
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.listener.abort();
        self.monitor.abort();
        self.watch.abort();
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn instance(&self) -> &Instance {
        &self.target.identity.instance
    }

    fn maps(&self) -> &[ShardMap] {
        &self.maps
    }

    fn clock(&self) -> &DatabaseClock {
        &self.clock
    }

    async fn read_clock(&self) -> Result<SystemTime, Error> {
        self.patiently().through(|| machine::read_clock(&self.pool, &self.clock)).await
    }

    async fn lease_machine(&self) -> Result<LeasedSpan, Error> {
        let lease = machine::lease(&self.pool, &self.clock, self.instance(), None);
        let span = self.target.lineage.during(lease).await?;
        Ok(LeasedSpan { span, clock: self.clock.clone() })
    }

    async fn renew_machine(&self, machine: Machine) -> Result<Span, Error> {
        let lease = machine::lease(&self.pool, &self.clock, self.instance(), Some(machine));
        self.target.lineage.during(lease).await
    }

    async fn holdings(&self, group: &GroupName) -> Result<Vec<Holding>, Error> {
        let group = self.groups.get(group)?;
        self.patiently().through(|| reads::holdings(&self.pool, self.cluster.as_deref(), group)).await
    }

    async fn claim(&self, fences: &[Fence]) -> Result<Vec<Result<(), Error>>, Error> {
        let claim = async || {
            let mut connection = self.claims.connect().await.map_err(unavailable)?;
            let won = claim::take(&mut connection, &self.target, &self.groups, fences).await?;
            connection.keep();
            Ok(won)
        };
        let won = self.patiently().through(claim).await?;
        let verdict = |(fence, won): (&Fence, bool)| {
            if won { Ok(()) } else { Err(Error::Fenced { shard: fence.shard.clone() }) }
        };
        Ok(fences.iter().zip(won).map(verdict).collect())
    }

    async fn standing(&self, fences: &[Fence]) -> Result<Vec<bool>, Error> {
        self.patiently().through(|| reads::standing(&self.pool, &self.groups, self.instance(), fences)).await
    }

    async fn submit(&self, write: Write) -> Result<Receipt, Error> {
        self.target.lineage.valid()?;
        self.lanes.submit(write).await
    }

    async fn begin(&self) -> Result<super::Transaction, Error> {
        let begun = self.target.lineage.during(self.transactions.begin()).await?;
        Ok(super::Transaction::postgres_one(begun))
    }

    async fn open_messages(&self, shards: &[ShardId], page: Page) -> Result<Vec<Stored>, Error> {
        self.patiently().through(|| reads::open_messages(&self.pool, &self.groups, shards, &page)).await
    }

    async fn progress(&self, request: Snowflake) -> Result<Progress, Error> {
        self.patiently().through(|| reads::progress(&self.pool, request)).await
    }

    async fn keyed(&self, key: &IdempotencyKey) -> Result<Option<Snowflake>, Error> {
        self.patiently().through(|| reads::keyed(&self.pool, key)).await
    }

    async fn chunks(
        &self,
        request: Snowflake,
        after: Option<Sequence>,
        limit: u32,
    ) -> Result<Vec<Chunk>, Error> {
        self.patiently().through(|| reads::chunks(&self.pool, request, after, limit)).await
    }

    async fn watermark(&self, request: Snowflake) -> Result<Watermark, Error> {
        self.patiently().through(|| reads::watermark(&self.pool, request)).await
    }

    async fn state(&self, address: &EntityAddress) -> Result<Option<State>, Error> {
        self.target.lineage.during(self.states.get(address)).await
    }

    async fn timers(&self, shards: &[ShardId], until: SystemTime, limit: u32) -> Result<Vec<Timer>, Error> {
        self.patiently().through(|| reads::timers(&self.pool, &self.groups, shards, until, limit)).await
    }

    async fn dead_letters(
        &self,
        group: &GroupName,
        before: Option<Snowflake>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, Error> {
        let group = self.groups.get(group)?;
        self.patiently().through(|| reads::dead_letters(&self.pool, group, before, limit)).await
    }

    async fn execution(&self, address: &EntityAddress) -> Result<Option<StoredExecution>, Error> {
        self.patiently().through(|| workflows::execution(&self.pool, address)).await
    }

    async fn journal(&self, run: Snowflake, from: i64, limit: u32) -> Result<Vec<Bytes>, Error> {
        self.patiently().through(|| workflows::journal(&self.pool, run, from, limit)).await
    }

    async fn active_executions(
        &self,
        shards: &[ShardId],
        after: Option<EntityAddress>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error> {
        let after = after.as_ref();
        self.patiently().through(|| workflows::active(&self.pool, &self.groups, shards, after, limit)).await
    }

    async fn executions(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error> {
        let after = after.as_ref();
        self.patiently()
            .through(|| workflows::executions(&self.pool, &self.groups, filter, after, limit))
            .await
    }

    async fn execution_types(&self, group: &GroupName) -> Result<Vec<EntityType>, Error> {
        self.patiently().through(|| workflows::types(&self.pool, &self.groups, group)).await
    }

    async fn unfinished_executions(&self, shards: &[ShardId]) -> Result<Vec<Tally>, Error> {
        self.patiently().through(|| holds::unfinished(&self.pool, &self.groups, shards)).await
    }

    async fn hold(&self, holds: &[Hold]) -> Result<(), Error> {
        self.patiently().through(|| holds::hold(&self.pool, &self.groups, holds)).await
    }

    async fn release(&self, holds: &[Hold]) -> Result<(), Error> {
        self.patiently().through(|| holds::release(&self.pool, &self.groups, holds)).await
    }

    async fn holds(&self, after: Option<Hold>, limit: u32) -> Result<Vec<Hold>, Error> {
        self.patiently().through(|| holds::holds(&self.pool, &self.groups, after.as_ref(), limit)).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    async fn wake(&self, shards: &[ShardId]) -> Result<(), Error> {
        self.patiently().through(|| listen::notify(&self.pool, &self.groups, shards)).await
    }

    async fn retain(&self, retention: &Retention) -> Result<u64, Error> {
        // Read again for each round: the cutoff of what is deleted is not left to a clock that was set a while ago.
        let now = self.read_clock().await?;
        #[cfg(any(test, feature = "testing"))]
        let now = self.clock.shifted(now);
        self.target.lineage.during(self.retainer.run(&self.pool, retention, now)).await
    }

    async fn close(&self) {
        self.lanes.close().await;
        self.transactions.close().await;
        self.listener.abort();
        self.monitor.abort();
        self.claims.close().await;
        self.watch.abort();
        self.pool.close().await;
    }
}
