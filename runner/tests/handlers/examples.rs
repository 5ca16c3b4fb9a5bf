//! The example services, under failure.
//!
//! Between runner and service stands somebody who lets everything through, or does what broken services do.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleat_runner::definitions::{Declared, Set};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::world::{PATIENCE, Place, World, on_both_stores, until};

on_both_stores!(the_python_service_through_all_troubles, the_typescript_service_through_all_troubles);

async fn the_python_service_through_all_troubles(place: Place) {
    through_all_troubles(place, "http-python", &["python3", "pricing.py"]).await;
}

async fn the_typescript_service_through_all_troubles(place: Place) {
    through_all_troubles(place, "http-typescript", &["node", "--input-type=module"]).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Good,
    Down,
    Slow,
    Failing,
    Babbling,
    Endless,
}

async fn through_all_troubles(place: Place, folder: &str, command: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(folder);
    let Some((_process, service)) = example(&folder, command).await else {
        eprintln!("skipped: {} is not installed", command[0]);
        return;
    };
    let between = Between::start(service).await;
    let world = World::new(place).await;
    let manifest = std::fs::read_to_string(folder.join("entitytype.yaml")).unwrap();
    let manifest = manifest
        .replace("http://pricing.shop.svc/", &format!("http://{}/", between.address))
        .replace("timeout: 2s", "timeout: 1s")
        .replace("attempts: 10, backoff: 200ms, max: 30s", "attempts: 100, backoff: 50ms, max: 200ms")
        .replace("name: pricing, key: key", "name: handler, key: key");
    world.keeper.apply(&declared(&manifest)).await;
    assert_eq!(world.keeper.serving().borrow().problems, []);

    // As it should be.
    let set = |price: i64| world.ask("price/apples", "setPrice", json!({"price": price}));
    assert_eq!(set(5).await.unwrap(), json!({"was": 1}));
    assert_eq!(world.ask("price/apples", "get", Json::Null).await.unwrap(), json!(5));
    // A no is final, and the caller gets the service's own words.
    let (_, words) = set(-1).await.unwrap_err();
    assert!(words.contains("InvalidPrice") && words.contains("a price is more than nothing"), "{words}");
    // Another key is another sender.
    let forged = manifest.replace("name: handler, key: key", "name: handler, key: forged");
    world.keeper.apply(&declared(&forged)).await;
    assert!(set(6).await.is_err());
    world.keeper.apply(&declared(&manifest)).await;

    // Each trouble: persisted messages are tried again until it is over, and take effect once. Volatile ones fail.
    let mut prices = vec![5];
    for (number, mode) in
        [Mode::Down, Mode::Slow, Mode::Failing, Mode::Babbling, Mode::Endless].into_iter().enumerate()
    {
        between.become_(mode);
        let expected = match mode {
            Mode::Good => "",
            Mode::Down => "Connection",
            Mode::Slow => "TimedOut",
            Mode::Failing => "500",
            Mode::Babbling => "InvalidAnswer",
            Mode::Endless => "AnswerTooLarge",
        };
        let told = async {
            loop {
                let (reason, words) = world.ask("price/apples", "get", Json::Null).await.unwrap_err();
                assert_eq!(reason, "Crashed", "{mode:?}: {words}");
                // The first may still meet a connection of before, which has just ended.
                if words.contains(expected) {
                    return;
                }
            }
        };
        assert!(
            tokio::time::timeout(PATIENCE, told).await.is_ok(),
            "{mode:?}: nobody was told of {expected}"
        );
        let price = 10 + i64::try_from(number).unwrap();
        let before = between.troubled.load(Ordering::SeqCst);
        let over = async {
            until("it was tried in vain", || between.troubled.load(Ordering::SeqCst) > before + 1).await;
            between.become_(Mode::Good);
        };
        let (said, ()) = tokio::join!(set(price), over);
        assert_eq!(said.unwrap(), json!({"was": prices.last()}), "{mode:?}");
        prices.push(price);
    }
    // Message and state committed together, each time.
    let told = async {
        while world.ask("audit/prices", "seen", Json::Null).await.unwrap() != json!(prices) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, told).await.is_ok(), "the audit never heard of all prices");
}

/// Starts an example and gives its address, if there is something to run it with.
async fn example(folder: &Path, command: &[&str]) -> Option<(Child, SocketAddr)> {
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).current_dir(folder).env("CLEAT_KEY", "s3cret").env("PORT", "0");
    if command.len() > 1 && command[1].starts_with("--") {
        child.stdin(std::fs::File::open(folder.join("pricing.ts")).unwrap());
    }
    let mut child = child.stdout(Stdio::piped()).kill_on_drop(true).spawn().ok()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let port: u16 = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
    Some((child, SocketAddr::from(([127, 0, 0, 1], port))))
}

fn declared(manifest: &str) -> Set {
    let mut set = Set::default();
    for document in serde_yaml::Deserializer::from_str(manifest) {
        let object: Json = serde::Deserialize::deserialize(document).unwrap();
        let object: cleat_crds::EntityType = serde_json::from_value(object).unwrap();
        set.entities.insert(object.metadata.name.unwrap(), Declared::first(object.spec));
    }
    set
}

/// Stands between.
struct Between {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    /// How many connections met with trouble.
    troubled: Arc<AtomicUsize>,
}

impl Between {
    async fn start(service: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, modes) = watch::channel(Mode::Good);
        let troubled: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&troubled);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (mut modes, counted) = (modes.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    let mode = *modes.borrow_and_update();
                    if mode != Mode::Good {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                    // A connection ends with its time.
                    tokio::select! {
                        _ = modes.changed() => {}
                        () = serve(mode, stream, service) => {}
                    }
                });
            }
        });
        Self { address, mode, troubled }
    }

    fn become_(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn serve(mode: Mode, mut stream: TcpStream, service: SocketAddr) {
    let answer: &[u8] = match mode {
        Mode::Good => {
            let mut onwards = TcpStream::connect(service).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut onwards).await;
            return;
        }
        Mode::Down => return,
        Mode::Slow => return std::future::pending().await,
        Mode::Failing => b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        Mode::Babbling => b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
        Mode::Endless => b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
    };
    let mut some = [0; 4096];
    let _ = stream.read(&mut some).await;
    let _ = stream.write_all(answer).await;
    while mode == Mode::Endless && stream.write_all(&[b' '; 4096]).await.is_ok() {}
    let _ = stream.shutdown().await;
    // Whatever else was sent is read, so that the answer is not lost to a reset.
    while stream.read(&mut some).await.is_ok_and(|read| read > 0) {}
}
