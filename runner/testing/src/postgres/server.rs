use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::account::Account;
use super::binaries::Binaries;
use super::error::{Context, Error};
use super::home::Home;
use super::postmaster::{Launch, Postmaster, Shutdown, command};

/// The superuser, who needs no password.
pub(super) const USER: &str = "postgres";

/// Ports below those that the system gives to outgoing connections: none of these takes a stopped server's port
/// away, and none can meet itself there.
const PORTS: std::ops::Range<u16> = 15_000..30_000;

/// How many ports are tried until one is free from the look at it to the server's start.
pub(super) const PORT_ATTEMPTS: u32 = 50;

/// What a server is started with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    networks: Vec<String>,
}

impl Options {
    /// Adds a line to `postgresql.conf`. A later one wins, also over the defaults of this crate.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Listens at `address`, too, and lets in everybody who comes from `network`, such as `198.18.0.0/30`.
    #[must_use]
    pub fn serve(mut self, address: &str, network: &str) -> Self {
        self.networks.push(network.to_owned());
        self.set("listen_addresses", &format!("127.0.0.1,{address}"))
    }

    fn render(&self, home: &Path) -> String {
        let home = home.to_string_lossy();
        let ours = [
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", &home),
            ("fsync", "on"),
            ("max_connections", "300"),
            // In the data folder, so that a killed server leaves nothing elsewhere.
            ("dynamic_shared_memory_type", "mmap"),
            ("log_line_prefix", "%m [%p] %d "),
        ];
        let theirs = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut lines = String::from("\n");
        for (name, value) in ours.into_iter().chain(theirs) {
            let value = value.replace('\\', "\\\\").replace('\'', "''");
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{name} = '{value}'");
        }
        lines
    }
}

/// Which processes of a server to pause or resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The one backend with this process id, as `pg_backend_pid()` tells it.
    Backend(i32),
    /// Every process of the server: connections stay open, new ones are neither accepted nor refused.
    All,
}

impl Target {
    fn backend(self) -> Option<i32> {
        match self {
            Self::Backend(pid) => Some(pid),
            Self::All => None,
        }
    }
}

/// An empty database. It lives as long as its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Where it is, with everything that is needed to connect.
    pub url: String,
    /// Its name on the server.
    pub name: String,
}

/// A throwaway PostgreSQL server. Dropping it stops it and removes all that it wrote.
///
/// # Caveats
/// Dropping it takes a moment in which the thread is blocked.
#[derive(Debug)]
pub struct Server {
    // Dropped in this order: the folder's removal ends the server, then the postmaster is reaped.
    pub(super) home: Home,
    pub(super) postmaster: Option<Postmaster>,
    pub(super) binaries: Binaries,
    pub(super) account: Account,
    pub(super) port: u16,
    pub(super) databases: AtomicU64,
}

impl Server {
    /// Starts a server of the caller's own, which accepts connections when this returns.
    ///
    /// # Errors
    /// When PostgreSQL is not installed ([`Error::Missing`] says what to install) or does not start.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let binaries = Binaries::find()?;
        let account = Account::choose()?;
        let home = Home::create(account)?;
        create_cluster(&binaries, account, &home, &options).await?;
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()?;
            if let Launch::Ready(postmaster) = Postmaster::launch(&binaries, account, &home, port).await? {
                let (postmaster, databases) = (Some(postmaster), AtomicU64::new(1));
                return Ok(Self { home, postmaster, binaries, account, port, databases });
            }
        }
        Err(no_port())
    }

    /// Creates an empty database that no other test knows.
    ///
    /// # Errors
    /// When the server does not run or refuses.
    pub async fn database(&self) -> Result<Database, Error> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&self.url("postgres")).await?;
        // Nobody can be connected to template0, so copies of it need not wait for each other.
        let create = format!("CREATE DATABASE {name} TEMPLATE template0");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await?;
        connection.close().await?;
        Ok(Database { url: self.url(&name), name })
    }

    /// Where `database` is, over TCP on the loopback address. It stays the same for the server's whole life.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_at("127.0.0.1", database)
    }

    /// The same at another address that the server was [told to serve](Options::serve).
    #[must_use]
    pub fn url_at(&self, address: &str, database: &str) -> String {
        format!("postgres://{USER}@{address}:{}/{database}?sslmode=disable", self.port)
    }

    /// The server's folder; `log` in it is what the server logged.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// Shuts the server down. The data stay, and [`start_again`](Self::start_again) continues with them.
    ///
    /// What was [paused](Self::pause) is resumed first.
    ///
    /// # Errors
    /// [`Error::NotRunning`], and [`Error::Late`] when the shutdown takes a minute, as a smart one does when a
    /// client does not go.
    pub async fn stop(&mut self, how: Shutdown) -> Result<(), Error> {
        self.postmaster.as_mut().ok_or(Error::NotRunning)?.shut_down(how, &self.home).await?;
        self.postmaster = None;
        Ok(())
    }

    /// Kills the postmaster and all backends with SIGKILL. Only what was committed survives.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub async fn kill(&mut self) -> Result<(), Error> {
        self.postmaster.as_mut().ok_or(Error::NotRunning)?.kill(&self.home).await?;
        self.postmaster = None;
        Ok(())
    }

    /// Starts the stopped or killed server with its data and on its port, and waits for the end of recovery.
    ///
    /// # Errors
    /// [`Error::Running`] when it runs, [`Error::Io`] when another program has taken the port, [`Error::Start`] when
    /// it does not start.
    pub async fn start_again(&mut self) -> Result<(), Error> {
        if self.postmaster.is_some() {
            return Err(Error::Running);
        }
        match Postmaster::launch(&self.binaries, self.account, &self.home, self.port).await? {
            Launch::Ready(postmaster) => self.postmaster = Some(postmaster),
            Launch::PortTaken => return Err(no_port()),
        }
        Ok(())
    }

    /// Stops the server and starts it again.
    ///
    /// # Errors
    /// As [`stop`](Self::stop) and [`start_again`](Self::start_again).
    pub async fn restart(&mut self, how: Shutdown) -> Result<(), Error> {
        self.stop(how).await?;
        self.start_again().await
    }

    /// Freezes processes with SIGSTOP, and returns when they stand still.
    ///
    /// # Errors
    /// [`Error::NotRunning`], and [`Error::Foreign`] for a process that is not of this server.
    pub async fn pause(&mut self, target: Target) -> Result<(), Error> {
        let postmaster = self.postmaster.as_ref().ok_or(Error::NotRunning)?;
        postmaster.pause(target.backend(), &self.home).await
    }

    /// Lets paused processes go on.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn resume(&mut self, target: Target) -> Result<(), Error> {
        self.postmaster.as_ref().ok_or(Error::NotRunning)?.resume(target.backend())
    }
}

async fn create_cluster(
    binaries: &Binaries,
    account: Account,
    home: &Home,
    options: &Options,
) -> Result<(), Error> {
    let data = home.data();
    DirBuilder::new().mode(0o700).create(&data).to("create the data folder")?;
    account.take(&data)?;
    let mut initdb = command(&binaries.initdb, account, home);
    initdb.arg("-D").arg(&data).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
    // If this future is dropped, the folder's removal ends initdb too.
    let done = tokio::process::Command::from(initdb).output().await.to("run initdb")?;
    if !done.status.success() {
        let output = [done.stdout, done.stderr].concat();
        return Err(Error::Initdb { output: String::from_utf8_lossy(&output).into_owned() });
    }
    let mut file = std::fs::File::options();
    let mut file = file.append(true).open(data.join("postgresql.conf")).to("open postgresql.conf")?;
    file.write_all(options.render(home.path()).as_bytes()).to("write postgresql.conf")?;
    let rules = options.networks.iter().map(|network| format!("host all all {network} trust\n"));
    let mut file =
        std::fs::File::options().append(true).open(data.join("pg_hba.conf")).to("open pg_hba.conf")?;
    file.write_all(rules.collect::<String>().as_bytes()).to("write pg_hba.conf")
}

/// A port that nobody listens on at this moment.
pub(super) fn free_port() -> Result<u16, Error> {
    let mut ports = std::iter::repeat_with(|| rand::random_range(PORTS)).take(1_000);
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).ok_or_else(no_port)
}

pub(super) fn no_port() -> Error {
    Error::Io { action: "find a free port", source: std::io::ErrorKind::AddrInUse.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_setting_comes_last_and_is_quoted() {
        let options =
            Options::default().set("max_connections", "7").set("application_name", r"it's a \ test");
        let lines = options.render(Path::new("/somewhere"));
        assert!(
            lines.ends_with("max_connections = '7'\napplication_name = 'it''s a \\\\ test'\n"),
            "{lines}"
        );
        assert!(
            lines.contains("fsync = 'on'\n") && lines.contains("unix_socket_directories = '/somewhere'\n")
        );
    }
}
