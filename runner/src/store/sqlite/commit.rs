//! One batch, one transaction.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::change::{Halt, Transaction};
use super::error::{convert, of_commit};
use super::place::Place;
use super::schema::Group;
use crate::clock::DatabaseClock;
use crate::message::codec::time;
use crate::shard::{Fence, GroupName, Instance};
use crate::store::lane::Commit;
use crate::store::{Committed, Error, Write};

type Answer = Result<Committed, Error>;

/// The one writer of a store.
pub(super) struct Committer {
    pub(super) instance: Instance,
    pub(super) place: Arc<Place>,
    pub(super) options: SqliteConnectOptions,
    /// Gone after trouble, and made anew for the next batch.
    pub(super) connection: Option<SqliteConnection>,
    pub(super) groups: HashMap<GroupName, Group>,
    pub(super) clock: DatabaseClock,
}

impl Commit for Committer {
    async fn commit(&mut self, batch: &[Write]) -> Vec<Answer> {
        let place = Arc::clone(&self.place);
        let turn = place.write().await;
        let done = self.transact(batch).await;
        drop(turn);
        done.unwrap_or_else(|error| {
            // Whatever state the connection is in, nobody has to know it.
            self.connection = None;
            vec![Err(error); batch.len()]
        })
    }
}

impl Committer {
    /// What became of each write, or why the whole transaction failed.
    async fn transact(&mut self, batch: &[Write]) -> Result<Vec<Answer>, Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.options.connect().await.map_err(convert)?),
        };
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(convert)?;
        let mut standing = HashMap::new();
        let mut answers = Vec::with_capacity(batch.len());
        let now = time::to_millis(self.clock.now());
        for write in batch {
            let stands = match standing.get(&write.fence) {
                Some(stands) => *stands,
                None => {
                    let stands = stands(&mut transaction, &self.groups, &self.instance, &write.fence).await?;
                    standing.insert(write.fence.clone(), stands);
                    stands
                }
            };
            answers.push(if stands {
                let context = Transaction { connection: &mut transaction, groups: &self.groups, now };
                apply(context, write).await?
            } else {
                Err(Error::Fenced { shard: write.fence.shard.clone() })
            });
        }
        transaction.commit().await.map_err(of_commit)?;
        Ok(answers)
    }
}

/// Whether a fence is the newest of its shard. Nobody can raise it before the end of the transaction.
pub(super) async fn stands(
    connection: &mut SqliteConnection,
    groups: &HashMap<GroupName, Group>,
    instance: &Instance,
    fence: &Fence,
) -> Result<bool, Error> {
    let Some(group) = groups.get(&fence.shard.group) else { return Ok(false) };
    let select = "SELECT EXISTS (SELECT 1 FROM cleat_shards \
                  WHERE grp = ? AND shard = ? AND generation = ? AND epoch = ? AND instance = ?)";
    let select = sqlx::query_scalar(select).bind(group.number).bind(fence.shard.id);
    let select = select.bind(group.map.generation()).bind(fence.epoch.get()).bind(instance.as_str());
    select.fetch_one(connection).await.map_err(convert)
}

/// Does a write whole or not at all. The outer error is trouble that the whole transaction has.
async fn apply(mut transaction: Transaction<'_>, write: &Write) -> Result<Answer, Error> {
    transaction.run("SAVEPOINT cleat_write").await?;
    let halt = match transaction.apply(write).await {
        Ok(()) => {
            transaction.run("RELEASE cleat_write").await?;
            return Ok(Ok(Committed::Applied));
        }
        Err(halt) => halt,
    };
    let answer = match halt {
        Halt::Duplicate { request, outcome } => Ok(Committed::Duplicate { request, outcome }),
        // SQLite may have ended the transaction by itself.
        Halt::Failed(error @ Error::Unavailable { .. }) => return Err(error),
        Halt::Failed(error) => Err(error),
    };
    transaction.run("ROLLBACK TO cleat_write").await?;
    transaction.run("RELEASE cleat_write").await?;
    Ok(answer)
}
