//! A runner as a program: it is told by its environment how to run, and ends when it is asked to.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleat_runner::lease::{Event, Leases, Memory, RunnerRecord};
use cleat_runner::prelude::*;
use cleat_runner::runner::{Error, Place, Port};
use cleat_runner::singleton;
use cleat_runner::supervisor::{Failure, Fault};
use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

#[path = "schema/earlier.rs"]
mod earlier;

const PATIENCE: Duration = Duration::from_secs(60);

/// Tells the test binary to be the program.
const FOLDER: &str = "CLEAT_TEST_FOLDER";

#[entity(name = "counter", state = i64)]
struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn add(&self, total: &mut i64, count: i64) -> Result<i64, Never> {
        *total += count;
        Ok(*total)
    }
}

/// Counts its starts in a durable entity, notes the number, and notes its end.
fn starter(folder: PathBuf) -> Singleton {
    Singleton::new("starter", move |context: singleton::Context| {
        let folder = folder.clone();
        async move {
            let cancelled = context.cancellation();
            let total = CounterClient::new(&context).unwrap().add("starts", &1).await.unwrap();
            std::fs::write(folder.join(format!("started-{total}")), "")?;
            cancelled.cancelled().await;
            std::fs::write(folder.join(format!("ended-{total}")), "")
        }
    })
}

/// The program. A test by its attribute alone: it does nothing unless this process was started to be it.
#[test]
fn program() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let ticks = folder.clone();
    let code = Runner::from_env()
        .entity(Counter)
        .singleton(starter(folder))
        .cron(move |_| {
            let ticks = ticks.clone();
            let every_second = Schedule::new("* * * * * *")?;
            Ok::<_, cleat_runner::cron::InvalidSchedule>(Cron::running("beat", every_second, move |_| {
                let written = std::fs::write(ticks.join("ticked"), "");
                async move { written }
            }))
        })
        .run();
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
}

fn spawn(folder: &Path, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["program", "--exact", "--nocapture"]).kill_on_drop(true);
    command.env(FOLDER, folder).env("CLEAT_DATA_DIR", folder.join("data")).env("CLEAT_SHARDS", "4");
    command.envs(variables.iter().copied()).stdout(std::process::Stdio::null()).spawn().unwrap()
}

async fn appears(path: PathBuf) {
    let wait = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "{} never appears", path.display());
}

async fn terminate(mut child: Child) -> ExitStatus {
    let id = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    tokio::time::timeout(PATIENCE, child.wait()).await.expect("it does not end").unwrap()
}

async fn runs_twice(variables: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    for start in 1..=2 {
        let child = spawn(folder.path(), variables);
        appears(folder.path().join(format!("started-{start}"))).await;
        appears(folder.path().join("ticked")).await;
        std::fs::remove_file(folder.path().join("ticked")).unwrap();
        assert!(terminate(child).await.success());
        assert!(folder.path().join(format!("ended-{start}")).exists(), "it was not asked to end");
    }
}

#[tokio::test]
async fn a_program_on_sqlite_keeps_what_it_has_and_ends_in_order() {
    runs_twice(&[]).await;
}

#[tokio::test]
async fn a_program_on_postgresql_keeps_what_it_has_and_ends_in_order() {
    let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    // The lease of the one before was released in order, so nobody waits for its end.
    runs_twice(&[("CLEAT_DATABASE_URL", &database.url), ("CLEAT_CLUSTER_UID", "c1")]).await;
}

async fn refused(variables: &'static [(&'static str, &'static str)]) -> Error {
    let lookup =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let runner = Runner::from_variables(lookup).entity(Counter);
    runner.run_until(std::future::pending()).await.unwrap_err()
}

#[tokio::test]
async fn what_keeps_it_from_running_is_said_with_what_to_do() {
    let error = refused(&[("CLEAT_WEIGHT", "heavy")]).await;
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("CLEAT_WEIGHT"), "{error}");
    let error = refused(&[("CLEAT_DATA_DIR", "/proc/nowhere")]).await;
    assert!(error.to_string().contains("CLEAT_DATA_DIR"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_registered_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let twice = |_: singleton::Context| std::future::pending::<Result<(), Never>>();
    let runner = Runner::from_variables(|name| (name == "CLEAT_DATA_DIR").then(|| data.clone()))
        .singleton(Singleton::new("one", twice))
        .singleton(Singleton::new("one", twice));
    let error = runner.run_until(std::future::pending()).await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("one"), "{error}");
}

/// A part that notes when it is told to end, and whether its runner could still be asked then.
fn noting(
    name: &'static str,
    ends: &Arc<Mutex<Vec<(&'static str, bool)>>>,
) -> impl FnOnce(Place) -> std::pin::Pin<Box<dyn Future<Output = Result<Ending, Never>> + Send>> + Send + 'static
{
    let ends = Arc::clone(ends);
    move |place: Place| {
        Box::pin(async move {
            let ending: Ending = Box::pin(async move {
                place.stop.cancelled().await;
                ends.lock().unwrap().push((name, place.node.is_shut_down()));
            });
            Ok(ending)
        })
    }
}

type Ending = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test]
async fn what_runs_beside_the_node_ends_before_it_and_in_the_opposite_order() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let lookup = |name: &str| match name {
        "CLEAT_DATA_DIR" => Some(data.clone()),
        "CLEAT_GATEWAY_LISTEN" => Some("127.0.0.1:0".to_owned()),
        _ => None,
    };
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (asked, ports) = tokio::sync::oneshot::channel();
    let runner = Runner::from_variables(lookup)
        .beside("first", noting("first", &ends))
        .beside("second", noting("second", &ends))
        .beside("ports", move |place: Place| async move {
            let found =
                [Port::Gateway, Port::Gateway, Port::Admin].map(|port| place.listener(port).is_some());
            asked.send(found).unwrap();
            Ok::<_, Never>(async move { place.stop.cancelled().await })
        });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(runner.run_until(async { stopped.await.unwrap() }));
    let found = tokio::time::timeout(PATIENCE, ports).await.expect("it starts").unwrap();
    assert_eq!(found, [false; 3], "the runner has taken its ports itself");
    stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, run).await.expect("it ends").unwrap().unwrap();
    assert_eq!(*ends.lock().unwrap(), [("second", false), ("first", false)]);
}

#[tokio::test]
async fn a_runner_that_is_told_to_has_an_admin_port_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let lookup = |name: &str| match name {
        "CLEAT_DATA_DIR" => Some(data.clone()),
        "CLEAT_ADMIN_LISTEN" => Some("127.0.0.1:0".to_owned()),
        _ => None,
    };
    let leases = Memory::new();
    let mut events = leases.watch();
    let runner = Runner::from_variables(lookup).leases(Arc::new(leases));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(runner.run_until(async { stopped.await.unwrap() }));
    let found = async {
        loop {
            if let Some(Event::Runner(RunnerRecord { holder: Some(runner), .. })) = events.next().await {
                return runner.admin.unwrap();
            }
        }
    };
    let admin = tokio::time::timeout(PATIENCE, found).await.expect("it says where");
    let ready = async {
        loop {
            let mut stream = TcpStream::connect(&admin).await.unwrap();
            stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            if answer.ends_with("ready\n") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("it becomes ready");
    stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, run).await.expect("it ends").unwrap().unwrap();
    assert!(TcpStream::connect(&admin).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn a_part_that_ends_by_itself_ends_the_runner() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let runner = Runner::from_variables(|name| (name == "CLEAT_DATA_DIR").then(|| data.clone()))
        .beside("gateway", |_| async { Ok::<_, Never>(async {}) });
    let ran = tokio::time::timeout(PATIENCE, runner.run_until(std::future::pending())).await;
    let Err(Error::Failed(failure)) = ran.expect("it ends") else { panic!("it has failed") };
    assert_eq!(failure, Failure::Ended { task: "gateway".into() });
}

#[tokio::test]
async fn a_runner_that_loses_a_task_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let runner = Runner::from_variables(|name| (name == "CLEAT_DATA_DIR").then(|| data.clone())).beside(
        "saboteur",
        |place| async move {
            place.node.health().supervisor().inject("writer lane 0", Fault::Panic);
            Ok::<_, Never>(async move { place.stop.cancelled().await })
        },
    );
    let ran = tokio::time::timeout(PATIENCE, runner.run_until(std::future::pending())).await;
    let Err(error) = ran.expect("it ends") else { panic!("it has failed") };
    assert_eq!(error.reason(), "TaskFailed");
    let Error::Failed(failure) = error else { panic!("{error}") };
    assert!(failure.to_string().contains("writer lane 0"), "{failure}");
}

#[test]
fn the_stock_runner_tells_how_to_use_it() {
    let ask = |argument: &str| {
        let stock = env!("CARGO_BIN_EXE_cleat-runner");
        std::process::Command::new(stock).arg(argument).output().unwrap()
    };
    let version = String::from_utf8(ask("--version").stdout).unwrap();
    assert_eq!(version, format!("cleat-runner {}\n", env!("CARGO_PKG_VERSION")));
    let help = String::from_utf8(ask("--help").stdout).unwrap();
    assert!(help.contains("CLEAT_DATABASE_URL") && help.contains("CLEAT_CLUSTER\n"), "{help}");
    assert_eq!(ask("--port").status.code(), Some(2));
}

/// A page of a port, or none while nobody listens.
async fn page(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await.ok()?;
    Some(page)
}

async fn shows(port: u16, path: &str, text: &str) {
    let wait = async {
        while !page(port, path).await.is_some_and(|page| page.contains(text)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "{path} never says {text}");
}

#[tokio::test]
async fn a_runner_is_alive_and_not_ready_while_it_migrates_its_database() {
    let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    earlier::fourth(&database.url).await;
    // For as long as this is open, an index is not finished.
    let backup = earlier::snapshot(&database.url).await;
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let variables = [("CLEAT_DATABASE_URL", database.url.as_str()), ("CLEAT_ADMIN_LISTEN", &listen)];
    let child = spawn(folder.path(), &variables);
    earlier::building(&database.url).await;
    shows(port, "/readyz", "migrating the database to schema").await;
    for _ in 0..10 {
        assert!(page(port, "/livez").await.is_some_and(|page| page.starts_with("HTTP/1.1 200")));
        assert!(page(port, "/readyz").await.is_some_and(|page| page.starts_with("HTTP/1.1 503")));
    }
    shows(port, "/metrics", "cleat_").await;
    drop(backup);
    shows(port, "/readyz", "HTTP/1.1 200").await;
    shows(port, "/livez", "HTTP/1.1 200").await;
    assert!(terminate(child).await.success());
}
