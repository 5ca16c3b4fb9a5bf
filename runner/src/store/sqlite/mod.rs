//! The embedded database: one process, no set-up.
//!
//! Several stores may be open on one file, also from several processes: fences hold, because SQLite has one writer at a time.
//! Wakes reach the stores of the same process only.

mod change;
mod commit;
mod error;
mod execution;
mod holds;
mod machine;
mod options;
mod ownership;
mod place;
mod read;
mod retain;
mod schema;
mod transaction;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Acquire, ConnectOptions, Connection, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::{RwLockReadGuard, broadcast};

use self::commit::Committer;
use self::error::{convert, is_busy};
use self::place::Place;
use self::schema::Group;
pub(super) use self::transaction::Transaction;
use self::transaction::Transactions;
use super::lane::Lanes;
use super::{
    Cursor, DeadLetter, Error, Filter, Hold, Holding, Page, Progress, Receipt, Retention, State, Store,
    Stored, StoredExecution, Tally, Timer, Wake, Watermark, Write,
};
use crate::clock::{DatabaseClock, wall};
use crate::lease::{Boot, Clock};
use crate::message::snowflake::{LeasedSpan, Machine, Span};
use crate::message::{Chunk, EntityAddress, EntityType, IdempotencyKey, Sequence, Snowflake};
use crate::shard::{Fence, GroupName, Instance, ShardId, ShardMap};

pub use options::{Location, Options};

/// How many reads may be under way at once.
const READERS: u32 = 4;
/// How long to go on trying to open a file that another process is just making.
const OPENING: Duration = Duration::from_secs(10);

/// A [`Store`] in a file or in memory.
pub struct SqliteStore {
    instance: Instance,
    /// Whose database it was when it was opened.
    cluster: Option<String>,
    maps: Vec<ShardMap>,
    groups: HashMap<GroupName, Group>,
    place: Arc<Place>,
    pool: SqlitePool,
    transactions: Transactions,
    lanes: Lanes,
    clock: DatabaseClock,
}

impl SqliteStore {
    /// Opens a database and makes it what this binary needs: schema, groups, owner.
    ///
    /// # Errors
    /// - [`Error::TooOld`] if the schema has moved on too far for this binary.
    /// - [`Error::DatabaseInUse`] if it belongs to another Cluster.
    /// - [`Error::Unavailable`] if the file cannot be opened or written.
    pub async fn open(options: Options) -> Result<Self, Error> {
        let connect = options.location.connect();
        let opening = place::OPENING.lock().await;
        let mut writer = connect_patiently(&connect).await?;
        let place = Place::of(&options.location).map_err(|error| convert(error.into()))?;
        let turn = place.write().await;
        let groups = prepare(&mut writer, &options).await?;
        let pool = SqlitePoolOptions::new().max_connections(READERS).min_connections(1);
        let pool = pool.idle_timeout(None).max_lifetime(None).test_before_acquire(false);
        let pool = pool.connect_with(connect.clone()).await.map_err(convert)?;
        drop((turn, opening));

        let maps = groups.iter().map(|group| group.map.clone()).collect();
        let groups: HashMap<_, _> =
            groups.into_iter().map(|group| (group.map.group().clone(), group)).collect();
        let clock = DatabaseClock::new(wall());
        let transactions = Transactions::new(connect.clone(), &place, &options.instance, &groups, &clock);
        let committer = Committer {
            instance: options.instance.clone(),
            place: Arc::clone(&place),
            options: connect,
            connection: Some(writer),
            groups: groups.clone(),
            clock: clock.clone(),
        };
        let lanes =
            Lanes::start(vec![committer], options.lanes, options.metrics, &options.health.supervisor());
        Ok(Self {
            instance: options.instance,
            cluster: options.cluster,
            maps,
            groups,
            place,
            pool,
            transactions,
            lanes,
            clock,
        })
    }

    fn group(&self, name: &GroupName) -> Result<&Group, Error> {
        self.groups.get(name).ok_or_else(|| Error::NoSuchGroup(name.clone()))
    }

    async fn lease(&self, held: Option<Machine>) -> Result<Span, Error> {
        let (instance, now) = (self.instance.clone(), wall());
        let moment = Boot.now();
        self.clock.set_between(now, moment, moment);
        self.exclusively(|connection| {
            Box::pin(async move { machine::lease(connection, &instance, held, now).await })
        })
        .await
    }

    async fn reader(&self) -> Result<Reader<'_>, Error> {
        let turn = self.place.read().await;
        Ok(Reader { connection: self.pool.acquire().await.map_err(convert)?, _turn: turn })
    }

    /// Runs something in a transaction that may write.
    async fn exclusively<T: Send>(
        &self,
        work: impl for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let _turn = self.place.write().await;
        let mut connection = self.pool.acquire().await.map_err(convert)?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(convert)?;
        let done = work(transaction.acquire().await.map_err(convert)?).await?;
        transaction.commit().await.map_err(error::of_commit)?;
        Ok(done)
    }
}

/// A connection to read with, for as long as reading is possible.
struct Reader<'s> {
    // Given back before the turn ends.
    connection: PoolConnection<Sqlite>,
    _turn: Option<RwLockReadGuard<'s, ()>>,
}

/// The first connection. Two processes that make a file at the same time get in each other's way for a moment.
async fn connect_patiently(options: &SqliteConnectOptions) -> Result<SqliteConnection, Error> {
    let begun = Instant::now();
    loop {
        match options.connect().await {
            Err(error) if is_busy(&error) && begun.elapsed() < OPENING => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            done => return done.map_err(convert),
        }
    }
}

/// Makes the database what this binary needs, in one transaction, so that many may start at once.
async fn prepare(connection: &mut SqliteConnection, options: &Options) -> Result<Vec<Group>, Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(convert)?;
    schema::migrate(&mut transaction).await?;
    if let Some(cluster) = &options.cluster {
        schema::belong(&mut transaction, cluster, options.adopts.as_deref()).await?;
    }
    for (group, shards) in &options.groups {
        schema::ensure_group(&mut transaction, group, *shards).await?;
    }
    let groups = schema::groups(&mut transaction).await?;
    transaction.commit().await.map_err(error::of_commit)?;
    Ok(groups)
}

#[async_trait]
impl Store for SqliteStore {
    fn instance(&self) -> &Instance {
        &self.instance
    }

    fn maps(&self) -> &[ShardMap] {
        &self.maps
    }

    fn clock(&self) -> &DatabaseClock {
        &self.clock
    }

    /// The machine's wall clock is the database's. It is taken over when leases are renewed and not here, so that one that was stepped
    /// since then shows as skew.
    async fn read_clock(&self) -> Result<SystemTime, Error> {
        Ok(self.clock.now())
    }

    async fn lease_machine(&self) -> Result<LeasedSpan, Error> {
        Ok(LeasedSpan { span: self.lease(None).await?, clock: self.clock.clone() })
    }

    async fn renew_machine(&self, machine: Machine) -> Result<Span, Error> {
        self.lease(Some(machine)).await
    }

    async fn holdings(&self, group: &GroupName) -> Result<Vec<Holding>, Error> {
        let mut reader = self.reader().await?;
        schema::still_belongs(&mut reader.connection, self.cluster.as_deref()).await?;
        ownership::holdings(&mut reader.connection, self.group(group)?).await
    }

    async fn claim(&self, fences: &[Fence]) -> Result<Vec<Result<(), Error>>, Error> {
        let (fences, groups, instance) = (fences.to_vec(), self.groups.clone(), self.instance.clone());
        self.exclusively(|connection| {
            Box::pin(async move {
                let mut claimed = Vec::with_capacity(fences.len());
                for fence in &fences {
                    claimed.push(ownership::claim(connection, &groups, &instance, fence).await?);
                }
                Ok(claimed)
            })
        })
        .await
    }

    async fn standing(&self, fences: &[Fence]) -> Result<Vec<bool>, Error> {
        let mut reader = self.reader().await?;
        // One snapshot for all of them.
        let mut snapshot = reader.connection.begin().await.map_err(convert)?;
        let mut standing = Vec::with_capacity(fences.len());
        for fence in fences {
            standing.push(commit::stands(&mut snapshot, &self.groups, &self.instance, fence).await?);
        }
        snapshot.rollback().await.map_err(convert)?;
        Ok(standing)
    }

    async fn submit(&self, write: Write) -> Result<Receipt, Error> {
        self.lanes.submit(write).await
    }

    async fn begin(&self) -> Result<super::Transaction, Error> {
        Ok(super::Transaction::sqlite_one(self.transactions.begin().await?))
    }

    async fn open_messages(&self, shards: &[ShardId], page: Page) -> Result<Vec<Stored>, Error> {
        let mut reader = self.reader().await?;
        let mut open = Vec::new();
        // A statement here is a function call, so one for each shard is no waste.
        for shard in shards {
            let group = self.group(&shard.group)?;
            open.extend(read::open_messages(&mut reader.connection, group, shard, &page).await?);
        }
        open.sort_by_key(|stored| (stored.message.seq, stored.message.envelope.id));
        open.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
        Ok(open)
    }

    async fn progress(&self, request: Snowflake) -> Result<Progress, Error> {
        read::progress(&mut self.reader().await?.connection, request).await
    }

    async fn keyed(&self, key: &IdempotencyKey) -> Result<Option<Snowflake>, Error> {
        read::keyed(&mut self.reader().await?.connection, key).await
    }

    async fn chunks(
        &self,
        request: Snowflake,
        after: Option<Sequence>,
        limit: u32,
    ) -> Result<Vec<Chunk>, Error> {
        read::chunks(&mut self.reader().await?.connection, request, after, limit).await
    }

    async fn watermark(&self, request: Snowflake) -> Result<Watermark, Error> {
        read::watermark(&mut self.reader().await?.connection, request).await
    }

    async fn state(&self, address: &EntityAddress) -> Result<Option<State>, Error> {
        read::state(&mut self.reader().await?.connection, address).await
    }

    async fn timers(&self, shards: &[ShardId], until: SystemTime, limit: u32) -> Result<Vec<Timer>, Error> {
        let mut reader = self.reader().await?;
        let mut timers = Vec::new();
        for shard in shards {
            let group = self.group(&shard.group)?;
            timers.extend(read::timers(&mut reader.connection, group, shard, until, limit).await?);
        }
        timers.sort_by_key(|timer| timer.due);
        timers.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(timers)
    }

    async fn dead_letters(
        &self,
        group: &GroupName,
        before: Option<Snowflake>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, Error> {
        let mut reader = self.reader().await?;
        read::dead_letters(&mut reader.connection, self.group(group)?, before, limit).await
    }

    async fn execution(&self, address: &EntityAddress) -> Result<Option<StoredExecution>, Error> {
        execution::execution(&mut self.reader().await?.connection, address).await
    }

    async fn journal(&self, run: Snowflake, from: i64, limit: u32) -> Result<Vec<Bytes>, Error> {
        execution::journal(&mut self.reader().await?.connection, run, from, limit).await
    }

    async fn active_executions(
        &self,
        shards: &[ShardId],
        after: Option<EntityAddress>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error> {
        let mut reader = self.reader().await?;
        let mut active = Vec::new();
        for shard in shards {
            let group = self.group(&shard.group)?;
            let page = execution::active(&mut reader.connection, group, shard, after.as_ref(), limit);
            active.extend(page.await?);
        }
        let place = |stored: &StoredExecution| {
            let address = stored.execution.address.clone();
            (address.slot().get(), address)
        };
        active.sort_by_cached_key(place);
        active.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(active)
    }

    async fn executions(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error> {
        let mut reader = self.reader().await?;
        let group = self.group(&filter.group)?;
        execution::executions(&mut reader.connection, group, filter, after.as_ref(), limit).await
    }

    async fn execution_types(&self, group: &GroupName) -> Result<Vec<EntityType>, Error> {
        let mut reader = self.reader().await?;
        execution::types(&mut reader.connection, self.group(group)?).await
    }

    async fn unfinished_executions(&self, shards: &[ShardId]) -> Result<Vec<Tally>, Error> {
        let mut reader = self.reader().await?;
        let mut tallies: Vec<Tally> = Vec::new();
        for shard in shards {
            let of = holds::unfinished(&mut reader.connection, self.group(&shard.group)?, shard).await?;
            for one in of {
                let same = |known: &&mut Tally| (&known.group, known.phase) == (&one.group, one.phase);
                match tallies.iter_mut().find(same) {
                    Some(known) => known.count += one.count,
                    None => tallies.push(one),
                }
            }
        }
        Ok(tallies)
    }

    async fn hold(&self, holds: &[Hold]) -> Result<(), Error> {
        let holds = holds.to_vec();
        self.exclusively(|connection| Box::pin(async move { holds::hold(connection, &holds).await })).await
    }

    async fn release(&self, holds: &[Hold]) -> Result<(), Error> {
        let holds = holds.to_vec();
        self.exclusively(|connection| Box::pin(async move { holds::release(connection, &holds).await })).await
    }

    async fn holds(&self, after: Option<Hold>, limit: u32) -> Result<Vec<Hold>, Error> {
        holds::holds(&mut self.reader().await?.connection, after.as_ref(), limit).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.place.wakes.subscribe()
    }

    async fn wake(&self, shards: &[ShardId]) -> Result<(), Error> {
        if self.pool.is_closed() {
            return Err(Error::Closed);
        }
        for shard in shards {
            // Nobody listens: then nobody has to be woken.
            let _ = self.place.wakes.send(Wake::Shard(shard.clone()));
        }
        Ok(())
    }

    async fn retain(&self, retention: &Retention) -> Result<u64, Error> {
        let now = self.clock.now();
        let mut deleted = 0;
        for class in retain::Class::ALL {
            let horizon = class.horizon(retention, now);
            loop {
                let step = self.exclusively(|connection| Box::pin(retain::step(connection, class, horizon)));
                let (count, more) = step.await?;
                deleted += count;
                if !more {
                    break;
                }
            }
        }
        loop {
            let (count, more) = self.exclusively(|connection| Box::pin(retain::journals(connection))).await?;
            deleted += count;
            if !more {
                return Ok(deleted);
            }
        }
    }

    async fn close(&self) {
        self.lanes.close().await;
        self.transactions.close().await;
        self.pool.close().await;
    }
}
