//! The entity that is asked: the list of the messages that it has handled.

use cleat_runner::message::EntityAddress;
use cleat_runner::prelude::*;

#[entity(name = "list", state = Vec<u64>)]
pub struct List;

/// How long it is, and what is last.
pub type Seen = (usize, Option<u64>);

#[entity_impl]
impl List {
    /// One commit: the message, the new state and the reply. Its place in the list.
    #[rpc(persisted)]
    pub async fn append(&self, list: &mut Vec<u64>, message: u64) -> Result<usize, Never> {
        list.push(message);
        Ok(list.len())
    }

    /// The same for a message that is stored before it is handled.
    #[rpc(persisted, effects = "outside")]
    pub async fn append_stored(&self, list: &mut Vec<u64>, message: u64) -> Result<usize, Never> {
        list.push(message);
        Ok(list.len())
    }

    /// The same, and another list gets it, too.
    #[rpc(persisted)]
    pub async fn append_both(
        &self,
        context: &mut Context,
        list: &mut Vec<u64>,
        message: u64,
    ) -> Result<usize, Never> {
        list.push(message);
        let other = EntityAddress::new("list", &mirror(context.address().id.as_str())).unwrap();
        context.send_to(other, "append", &message, None).unwrap();
        Ok(list.len())
    }

    /// What is in memory.
    #[rpc]
    pub async fn read(&self, list: &Vec<u64>) -> Result<Seen, Never> {
        Ok((list.len(), list.last().copied()))
    }

    /// What is in memory, told a while later.
    #[rpc]
    pub async fn read_slowly(&self, list: &Vec<u64>) -> Result<Seen, Never> {
        let seen = (list.len(), list.last().copied());
        // On a thread of its own, which goes on at once when a process that stood still does.
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_secs(3)));
        Ok(seen)
    }
}

/// The list that gets what another one sends on.
pub fn mirror(id: &str) -> String {
    format!("mirror-of-{id}")
}
