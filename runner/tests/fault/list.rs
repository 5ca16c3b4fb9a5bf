//! The entity that is asked: the list of the messages that it has handled.

use cleat_runner::message::EntityAddress;
use cleat_runner::prelude::*;

/// The messages, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Messages(Vec<u64>);

impl Messages {
    /// Adds a message. Its place.
    fn push(&mut self, message: u64) -> usize {
        self.0.push(message);
        self.0.len()
    }

    fn seen(&self) -> Seen {
        (self.0.len(), self.0.last().copied())
    }
}

#[entity(name = "list", state = Messages)]
pub struct List;

/// How long it is, and what is last.
pub type Seen = (usize, Option<u64>);

#[entity_impl]
impl List {
    /// One commit: the message, the new state and the reply. Its place in the list.
    #[rpc(persisted)]
    pub async fn append(&self, list: &mut Messages, message: u64) -> Result<usize, Never> {
        Ok(list.push(message))
    }

    /// The same for a message that is stored before it is handled.
    #[rpc(persisted, effects = "outside")]
    pub async fn append_stored(&self, list: &mut Messages, message: u64) -> Result<usize, Never> {
        Ok(list.push(message))
    }

    /// The same, and another list gets it, too.
    #[rpc(persisted)]
    pub async fn append_both(
        &self,
        context: &mut Context,
        list: &mut Messages,
        message: u64,
    ) -> Result<usize, Never> {
        let other = EntityAddress::new("list", &mirror(context.address().id.as_str())).unwrap();
        context.send_to(other, "append", &message, None).unwrap();
        Ok(list.push(message))
    }

    /// The same, with a row of its own in the same transaction.
    #[rpc(persisted)]
    pub async fn append_with_row(
        &self,
        context: &mut Context,
        list: &mut Messages,
        message: u64,
    ) -> Result<usize, OrRetry<Never>> {
        let id = context.address().id.as_str().to_owned();
        let transaction = context.tx().await.map_err(OrRetry::retry)?;
        sqlx::query("INSERT INTO audit.rows (list, message) VALUES ($1, $2)")
            .bind(id)
            .bind(i64::try_from(message).map_err(OrRetry::retry)?)
            .execute(transaction.postgres().map_err(OrRetry::retry)?)
            .await
            .map_err(OrRetry::retry)?;
        Ok(list.push(message))
    }

    /// What is in memory.
    #[rpc]
    pub async fn read(&self, list: &Messages) -> Result<Seen, Never> {
        Ok(list.seen())
    }

    /// What is in memory, told a while later.
    #[rpc]
    pub async fn read_slowly(&self, list: &Messages) -> Result<Seen, Never> {
        let seen = list.seen();
        // On a thread of its own, which goes on at once when a process that stood still does.
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_secs(3)));
        Ok(seen)
    }
}

/// The list whose messages each have a row, too.
pub fn ledger(id: &str) -> String {
    format!("ledger-of-{id}")
}

/// The list that gets what another one sends on.
pub fn mirror(id: &str) -> String {
    format!("mirror-of-{id}")
}
