//! What goes over the socket.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::lease::{Claim, Error, Lock, Name, Runner, ShardRecord, Swap};
use crate::message::codec;
use crate::shard::Instance;

/// A question.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Register(Name, Runner),
    Renew(Lock, Runner),
    Release(Lock),
    Claim(Claim),
    Free(ShardRecord),
    Watch,
}

/// Its answer, unless it was to watch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Lock(Lock),
    Released,
    Swap(Swap),
    Failed(Failure),
}

/// An [`Error`] that can travel: its causes become text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    Lost { name: Name, holder: Option<Instance> },
    Unavailable(String),
    Refused(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Lost { name, holder } => Self::Lost { name, holder },
            Error::Unavailable(cause) => Self::Unavailable(cause.to_string()),
            Error::Refused(cause) => Self::Refused(cause.to_string()),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost { name, holder } => Self::Lost { name, holder },
            Failure::Unavailable(cause) => Self::Unavailable(cause.into()),
            Failure::Refused(cause) => Self::Refused(cause.into()),
        }
    }
}

/// Why an exchange over the socket failed.
#[derive(Debug, thiserror::Error)]
pub enum Protocol {
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    /// A frame does not hold what it should.
    #[error("a frame is not what it should be")]
    Codec(#[from] codec::Error),
    /// A frame is longer than any that is sent here.
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    /// The answer is to another kind of question.
    #[error("the answer does not belong to the question")]
    Unexpected,
}

/// Sixty thousand shards in one snapshot fit.
const LONGEST: usize = 64 << 20;

pub(super) async fn send<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> Result<(), Protocol> {
    let bytes = codec::encode(value)?;
    let length = u32::try_from(bytes.len()).map_err(|_| Protocol::TooLong(bytes.len()))?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(bytes);
    to.write_all(&frame).await?;
    Ok(())
}

pub(super) async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, Protocol> {
    let length = usize::try_from(from.read_u32().await?).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(Protocol::TooLong(length));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await?;
    Ok(codec::decode(&bytes)?)
}
