use std::error::Error as _;
use std::path::PathBuf;
use std::{fmt, io};

/// Why a throwaway server could not do what was asked.
///
/// Its `Debug` reads like its `Display` with all causes, so that an `unwrap` in a test says what to do.
#[derive(thiserror::Error)]
pub enum Error {
    /// There is no PostgreSQL on this machine.
    #[error(
        "PostgreSQL's server binaries (initdb and postgres) were not found; looked in: {}\n\
         install them and run again:\n  \
           Debian, Ubuntu:  apt-get install postgresql\n  \
           Fedora, RHEL:    dnf install postgresql-server\n  \
           Alpine:          apk add postgresql\n  \
           macOS:           brew install postgresql@17\n\
         or name the folder that holds them in {}",
        searched.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", "),
        super::binaries::OVERRIDE
    )]
    Missing {
        /// The folders that were looked into.
        searched: Vec<PathBuf>,
    },
    /// PostgreSQL refuses to run as root, and there is no account to run it as.
    #[error(
        "PostgreSQL does not run as root, and /etc/passwd has neither a `postgres` nor a `nobody` account"
    )]
    NoAccount,
    /// There is no folder for the server.
    #[error("cannot have a folder for the server")]
    Folder(#[from] crate::folder::Error),
    /// The operating system refused something.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// `initdb` failed.
    #[error("initdb failed:\n{output}")]
    Initdb {
        /// What it printed.
        output: String,
    },
    /// `pg_basebackup` failed.
    #[error("pg_basebackup failed:\n{output}")]
    BaseBackup {
        /// What it printed.
        output: String,
    },
    /// The server ended while it was starting.
    #[error("PostgreSQL did not start; its log:\n{log}")]
    Start {
        /// What it logged.
        log: String,
    },
    /// Nothing could be had in a generous time.
    #[error("PostgreSQL did not {goal} in {seconds} seconds; its log:\n{log}")]
    Late {
        /// What was waited for.
        goal: &'static str,
        /// How long it was waited for.
        seconds: u64,
        /// What the server logged.
        log: String,
    },
    /// The server is stopped or killed, and the call needs a running one.
    #[error("the server is not running")]
    NotRunning,
    /// The server runs, and the call needs a stopped one.
    #[error("the server is running already")]
    Running,
    /// The process is not a backend of this server.
    #[error("process {pid} is not a backend of this server")]
    Foreign {
        /// The process that was named.
        pid: i32,
    },
    /// The server refused a statement or a connection.
    #[error("PostgreSQL refused")]
    Sql(#[from] sqlx::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// Names the action that an `io::Error` stopped.
pub(super) trait Context<T> {
    fn to(self, action: &'static str) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn to(self, action: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action, source })
    }
}
