//! Standbys, promotion and base backups.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::error::{Context, Error};
use super::home::Home;
use super::postmaster::{GLANCE, Launch, Postmaster, command};
use super::server::{PORT_ATTEMPTS, USER, free_port, no_port};
use super::{Options, Server, Shutdown};

/// A primary with one synchronous and one asynchronous standby, each a hot standby that streams from the primary.
#[derive(Debug)]
pub struct Replication {
    /// The server that accepts writes.
    pub primary: Server,
    /// Every commit waits until this one has flushed it.
    pub synchronous: Server,
    /// No commit waits for this one.
    pub asynchronous: Server,
}

impl Replication {
    /// Starts the three. Commits on the primary wait for the synchronous standby when this returns.
    ///
    /// # Errors
    /// As [`Server::start`], and when `pg_basebackup` fails.
    pub async fn start(options: Options) -> Result<Self, Error> {
        // A standby that was away finds all that it missed.
        let primary = Server::start(options.set("wal_keep_size", "1GB")).await?;
        let synchronous = primary.standby("synchronous").await?;
        let asynchronous = primary.standby("asynchronous").await?;
        primary.configure("synchronous_standby_names", "synchronous").await?;
        let mut connection = PgConnection::connect(&primary.url("postgres")).await?;
        let sync = "SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')";
        while !sqlx::query_scalar::<_, bool>(sync).fetch_one(&mut connection).await? {
            tokio::time::sleep(GLANCE).await;
        }
        connection.close().await?;
        Ok(Self { primary, synchronous, asynchronous })
    }
}

/// The data of a server as they were at one moment. It lives as long as its server.
#[derive(Debug)]
pub struct Backup(PathBuf);

impl Server {
    /// Starts a hot standby of this server, which it knows by this `application_name`.
    ///
    /// # Errors
    /// As [`Server::start`], and [`Error::BaseBackup`].
    pub async fn standby(&self, name: &str) -> Result<Self, Error> {
        let home = Home::create(self.account)?;
        self.base_backup(&home, &home.data()).await?;
        let mut settings = String::from("\n");
        for (setting, value) in [
            ("unix_socket_directories", home.path().display().to_string()),
            (
                "primary_conninfo",
                format!("host=127.0.0.1 port={} user={USER} application_name={name}", self.port),
            ),
            // Only the primary's commits wait.
            ("synchronous_standby_names", String::new()),
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(settings, "{setting} = '{value}'");
        }
        // The one that ALTER SYSTEM writes wins over the other.
        let file = home.data().join("postgresql.auto.conf");
        let before = std::fs::read_to_string(&file).to("read postgresql.auto.conf")?;
        std::fs::write(&file, before + &settings).to("write postgresql.auto.conf")?;
        std::fs::write(home.data().join("standby.signal"), "").to("write standby.signal")?;
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()?;
            let launched = Postmaster::launch(&self.binaries, self.account, &home, port).await?;
            if let Launch::Ready(postmaster) = launched {
                let (postmaster, databases) = (Some(postmaster), AtomicU64::new(1_000_000));
                let (binaries, account) = (self.binaries.clone(), self.account);
                return Ok(Self { home, postmaster, binaries, account, port, databases });
            }
        }
        Err(no_port())
    }

    /// Makes a standby a primary, and returns when it accepts writes.
    ///
    /// # Errors
    /// When it does not run, or is not a standby.
    pub async fn promote(&mut self) -> Result<(), Error> {
        let mut connection = PgConnection::connect(&self.url("postgres")).await?;
        sqlx::query("SELECT pg_promote(true, 60)").execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    /// Changes a setting of the running server, and returns when new sessions have it.
    ///
    /// # Errors
    /// When the server does not run or refuses.
    pub async fn configure(&self, name: &str, value: &str) -> Result<(), Error> {
        let mut connection = PgConnection::connect(&self.url("postgres")).await?;
        let change = format!("ALTER SYSTEM SET {name} = '{}'", value.replace('\'', "''"));
        sqlx::raw_sql(AssertSqlSafe(change)).execute(&mut connection).await?;
        sqlx::query("SELECT pg_reload_conf()").execute(&mut connection).await?;
        connection.close().await?;
        loop {
            let mut connection = PgConnection::connect(&self.url("postgres")).await?;
            let now: String = sqlx::query_scalar("SELECT current_setting($1)")
                .bind(name)
                .fetch_one(&mut connection)
                .await?;
            connection.close().await?;
            if now == value {
                return Ok(());
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Takes a base backup of the running server.
    ///
    /// # Errors
    /// [`Error::BaseBackup`].
    pub async fn backup(&self) -> Result<Backup, Error> {
        let place = self.home.path().join(format!("backup-{:016x}", rand::random::<u64>()));
        self.base_backup(&self.home, &place).await?;
        Ok(Backup(place))
    }

    /// Stops the server, replaces its data by those of the backup, and starts it again: whatever was committed after the backup is lost.
    ///
    /// # Errors
    /// As [`stop`](Self::stop) and [`start_again`](Self::start_again).
    pub async fn restore(&mut self, backup: Backup) -> Result<(), Error> {
        self.stop(Shutdown::Immediate).await?;
        std::fs::remove_dir_all(self.home.data()).to("remove the server's data")?;
        std::fs::rename(backup.0, self.home.data()).to("put the backup in their place")?;
        self.start_again().await
    }

    async fn base_backup(&self, home: &Home, into: &Path) -> Result<(), Error> {
        let mut program = command(&self.binaries.basebackup(), self.account, home);
        program.arg("-D").arg(into).args(["-h", "127.0.0.1", "-U", USER, "-p", &self.port.to_string()]);
        program.args(["--checkpoint=fast", "--wal-method=stream", "--no-sync", "--no-password"]);
        // If this future is dropped, the folder's removal ends the program too.
        let done = tokio::process::Command::from(program).output().await.to("run pg_basebackup")?;
        if done.status.success() {
            return Ok(());
        }
        let output = [done.stdout, done.stderr].concat();
        Err(Error::BaseBackup { output: String::from_utf8_lossy(&output).into_owned() })
    }
}
