//! Secrets of the environment, which may change while the runner runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::transport::{Claim, Present, SharedToken, Unproven, Verify};

/// A file is not read more often than that.
const FRESH: Duration = Duration::from_secs(1);

/// A secret that the environment holds, or a file that it names. Clones are the same secret.
///
/// # Guarantees
/// A file is read again when somebody asks, at most once a second: a Secret that is mounted changes by itself. While it cannot be read,
/// or is empty, the last text counts.
#[derive(Clone)]
pub struct Secret {
    file: Option<Arc<Path>>,
    last: Arc<Mutex<Last>>,
}

struct Last {
    text: Arc<str>,
    read: Instant,
}

impl Secret {
    /// A secret that never changes.
    pub fn fixed(text: &str) -> Self {
        let last = Last { text: text.trim().into(), read: Instant::now() };
        Self { file: None, last: Arc::new(Mutex::new(last)) }
    }

    /// What a file holds.
    ///
    /// # Errors
    /// The file cannot be read, or is empty.
    pub fn file(path: impl Into<PathBuf>) -> std::io::Result<Self> {
        let path: PathBuf = path.into();
        let text = read(&path)?;
        let secret = Self::fixed(&text);
        Ok(Self { file: Some(path.into()), ..secret })
    }

    /// What it is now.
    pub fn current(&self) -> Arc<str> {
        let mut last = self.last();
        if let Some(file) = self.file.as_ref().filter(|_| last.read.elapsed() >= FRESH) {
            last.read = Instant::now();
            // A few bytes from memory, once a second: not worth another thread.
            match read(file) {
                Ok(text) if *text != *last.text => last.text = text.into(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "a secret cannot be read, its last text counts");
                }
            }
        }
        Arc::clone(&last.text)
    }

    /// Comes back when it is not that any more. One that is fixed stays what it is.
    pub async fn changed(&self, from: &str) -> Arc<str> {
        if self.file.is_none() {
            return std::future::pending().await;
        }
        loop {
            // Mounted files tell nobody that they have changed.
            tokio::time::sleep(FRESH).await;
            let text = self.current();
            if *text != *from {
                return text;
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        // Both fields are valid by themselves.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let text = std::fs::read_to_string(path)?.trim().to_owned();
    if text.is_empty() { Err(std::io::Error::other("the file is empty")) } else { Ok(text) }
}

impl fmt::Debug for Secret {
    /// Without what must not be told.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The credential of a Cluster: one token a line. The first is presented, each is accepted, so that it can be rotated.
pub struct Token {
    secret: Secret,
    tokens: SharedToken,
    /// What the tokens were made of.
    said: Mutex<Arc<str>>,
}

impl Token {
    /// The tokens that a secret holds.
    pub fn new(secret: Secret) -> Self {
        let token = Self { secret, tokens: SharedToken::new(""), said: Mutex::new("".into()) };
        token.current();
        token
    }

    /// A token that nobody else has.
    pub fn random() -> Self {
        Self::new(Secret::fixed(&format!("{:032x}", rand::random::<u128>())))
    }

    /// Whether somebody who presents this belongs to the Cluster: a runner, or its operator.
    pub fn accepts(&self, credential: &str) -> bool {
        self.current().accepts(credential)
    }

    fn current(&self) -> &SharedToken {
        let text = self.secret.current();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != text {
            let tokens = text.lines().map(str::trim).filter(|line| !line.is_empty());
            self.tokens.rotate(tokens.map(str::to_owned).collect());
            *said = text;
        }
        &self.tokens
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("secret", &self.secret).finish_non_exhaustive()
    }
}

impl Verify for Token {
    fn verify(&self, claim: &Claim) -> Result<(), Unproven> {
        self.current().verify(claim)
    }
}

impl Present for Token {
    fn credential(&self) -> String {
        self.current().credential()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn until(holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.expect("it happens");
    }

    #[tokio::test]
    async fn a_token_in_a_file_is_rotated_without_a_restart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old\n").unwrap();
        let token = Token::new(Secret::file(file.path()).unwrap());
        assert_eq!(token.credential(), "old");
        std::fs::write(file.path(), "new\nold\n").unwrap();
        until(|| token.credential() == "new").await;
        assert!(token.accepts("old") && token.accepts("new"));
        std::fs::write(file.path(), "new\n").unwrap();
        until(|| !token.accepts("old")).await;
        assert!(token.accepts("new") && !token.accepts(""));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_for_a_while_changes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one").unwrap();
        let secret = Secret::file(file.path()).unwrap();
        let path = file.path().to_owned();
        drop(file);
        let next = tokio::spawn({
            let secret = secret.clone();
            async move { secret.changed("one").await }
        });
        tokio::time::sleep(FRESH + Duration::from_millis(200)).await;
        assert_eq!(*secret.current(), *"one");
        std::fs::write(&path, "two").unwrap();
        let next = tokio::time::timeout(Duration::from_secs(30), next).await.expect("it is noticed");
        assert_eq!(*next.unwrap(), *"two");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn nothing_tells_a_secret() {
        let token = Token::new(Secret::fixed("hush"));
        assert!(!format!("{token:?}").contains("hush"));
    }
}
