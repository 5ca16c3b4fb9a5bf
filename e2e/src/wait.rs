//! Waiting for what will come.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks until there is something, and returns it.
///
/// # Errors
/// There is nothing after `limit`, or looking fails.
pub async fn within<T, F>(limit: Duration, what: impl Display, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if begun.elapsed() > limit {
            bail!("{what}: not after {} s", limit.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks until it is so, for at most a minute.
///
/// # Errors
/// As [`within`].
pub async fn until<F: Future<Output = Result<bool>>>(
    what: impl Display,
    mut look: impl FnMut() -> F,
) -> Result<()> {
    within(Duration::from_secs(60), what, || {
        let looking = look();
        async { Ok(looking.await?.then_some(())) }
    })
    .await
}
