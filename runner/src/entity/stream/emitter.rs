//! What a handler gives its items to.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use serde::Serialize;
use tokio::sync::Notify;

use super::Inlet;
use crate::entity::{Error, HandlerError};
use crate::message::codec;

/// How far a stream has come, for one attempt of its handler.
#[derive(Debug, Default)]
pub(crate) struct Position {
    /// How many items earlier attempts have stored.
    stored: i64,
    /// The number of the next item.
    next: AtomicI64,
}

impl Position {
    pub(crate) fn after(stored: i64) -> Self {
        Self { stored, next: AtomicI64::new(0) }
    }

    /// How many items are stored, from where the handler goes on.
    pub(crate) fn resume(&self) -> u64 {
        self.next.fetch_max(self.stored, Ordering::Relaxed);
        u64::try_from(self.stored).unwrap_or(0)
    }
}

/// Where one attempt's items go.
pub(crate) struct Output {
    pub(super) inlet: Inlet,
    pub(super) position: Arc<Position>,
    /// What ends the handler, whatever it does.
    fault: OnceLock<HandlerError>,
    faulty: Notify,
    limit: usize,
}

impl Output {
    pub(super) fn new(inlet: Inlet, position: Arc<Position>, limit: usize) -> Self {
        Self { inlet, position, fault: OnceLock::new(), faulty: Notify::new(), limit }
    }

    /// How far the stream has come.
    pub(crate) fn position(&self) -> Arc<Position> {
        Arc::clone(&self.position)
    }

    /// Waits for an item that ends the handler.
    pub(super) async fn fault(&self) -> HandlerError {
        loop {
            let faulty = self.faulty.notified();
            if let Some(error) = self.fault.get() {
                return error.clone();
            }
            faulty.await;
        }
    }

    /// Gives an item that was written.
    async fn give(&self, item: Option<Result<Bytes, Error>>) {
        match item {
            Some(Ok(item)) => self.inlet.put(item).await,
            Some(Err(error)) => {
                let _ = self.fault.set(HandlerError::failed(error.reason().to_owned(), error.to_string()));
                self.faulty.notify_one();
                // Whoever runs the handler drops it here.
                std::future::pending::<()>().await;
            }
            None => {}
        }
    }

    /// The next item as it travels. None if it is stored.
    fn write<T: Serialize>(&self, item: &T) -> Option<Result<Bytes, Error>> {
        let number = self.position.next.fetch_add(1, Ordering::Relaxed);
        (number >= self.position.stored).then(|| self.encode(number, item))
    }

    fn encode<T: Serialize>(&self, number: i64, item: &T) -> Result<Bytes, Error> {
        let bytes = codec::encode(item).map_err(|error| Error::codec("an item of the stream", &error))?;
        if bytes.len() > self.limit {
            return Err(Error::ItemTooLarge { number, size: bytes.len(), limit: self.limit });
        }
        if number >= i64::from(i32::MAX) {
            return Err(Error::StreamTooLong { limit: i32::MAX });
        }
        Ok(bytes.into())
    }
}

/// What the handler of a `#[rpc(stream)]` method gives its items to.
///
/// # Guarantees
/// Items come to the reader in the order in which they were given, and none is left out. Giving waits while the reader of a
/// volatile stream, or the commit of a persisted one, is behind. A handler whose volatile reader goes away is dropped where it
/// stands. An item that cannot be sent, because it is too large or has no form in MessagePack, ends the request with that error.
///
/// # Caveats
/// A persisted handler that is run again, because its runner died or an attempt failed, gives its items again from the first.
/// Those that are stored are passed over by their number, so a handler that gives other items the second time has to
/// [`resume`](Self::resume).
pub struct Emitter<T> {
    output: Arc<Output>,
    item: PhantomData<fn(T)>,
}

impl<T: Serialize> Emitter<T> {
    pub(crate) fn new(output: Arc<Output>) -> Self {
        Self { output, item: PhantomData }
    }

    /// Gives an item, once there is room for it.
    pub async fn emit(&mut self, item: T) {
        let written = self.output.write(&item);
        drop(item);
        self.output.give(written).await;
    }

    /// Says that this handler goes on where earlier attempts ended, instead of giving all items again.
    ///
    /// Comes back with how many items are stored: the number, counted from 0, of the item to give next. 0 on the first attempt.
    pub fn resume(&mut self) -> u64 {
        self.output.position.resume()
    }

    /// Gives all items of a stream, until its end or its first error.
    ///
    /// # Errors
    /// The stream's.
    pub async fn forward<E>(&mut self, items: impl Stream<Item = Result<T, E>>) -> Result<(), E> {
        let mut items = pin!(items);
        while let Some(item) = items.next().await {
            self.emit(item?).await;
        }
        Ok(())
    }
}
