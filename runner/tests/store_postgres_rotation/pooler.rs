//! A connection pooler in transaction mode: all clients share one session, which is free for others between transactions.

use std::sync::Arc;

use cleat_runner::store::Error;
use cleat_runner::store::postgres::PostgresStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::store_postgres_rig::{database, options};

/// A message of the protocol: its type and its body with the length before it.
async fn message(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32().await?;
    let mut body = vec![0; usize::try_from(length).unwrap()];
    body[..4].copy_from_slice(&length.to_be_bytes());
    stream.read_exact(&mut body[4..]).await?;
    Ok((kind, body))
}

async fn send(stream: &mut TcpStream, (kind, body): &(u8, Vec<u8>)) -> std::io::Result<()> {
    stream.write_all(&[&[*kind], body.as_slice()].concat()).await
}

/// Opens the session that all share.
async fn session(url: &str) -> TcpStream {
    let (user, rest) = url.strip_prefix("postgres://").unwrap().split_once('@').unwrap();
    let (address, rest) = rest.split_once('/').unwrap();
    let database = rest.split('?').next().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let parameters = format!("user\0{user}\0database\0{database}\0\0");
    let length = u32::try_from(parameters.len() + 8).unwrap();
    stream.write_u32(length).await.unwrap();
    stream.write_u32(196_608).await.unwrap();
    stream.write_all(parameters.as_bytes()).await.unwrap();
    while message(&mut stream).await.unwrap().0 != b'Z' {}
    stream
}

async fn serve(mut client: TcpStream, shared: Arc<Mutex<TcpStream>>) -> std::io::Result<()> {
    let length = client.read_u32().await?;
    let mut startup = vec![0; usize::try_from(length).unwrap() - 4];
    client.read_exact(&mut startup).await?;
    let word = |number: u32| number.to_be_bytes().to_vec();
    send(&mut client, &(b'R', [word(8), word(0)].concat())).await?;
    send(&mut client, &(b'K', [word(12), word(1), word(1)].concat())).await?;
    send(&mut client, &(b'Z', [word(5), b"I".to_vec()].concat())).await?;
    let mut held: Option<OwnedMutexGuard<TcpStream>> = None;
    loop {
        let asked = message(&mut client).await?;
        if asked.0 == b'X' {
            return Ok(());
        }
        let mut server = match held.take() {
            Some(server) => server,
            None => Arc::clone(&shared).lock_owned().await,
        };
        send(&mut server, &asked).await?;
        // After a query or a Sync the server answers until it is ready.
        let mut idle = false;
        if matches!(asked.0, b'Q' | b'S') {
            loop {
                let answer = message(&mut server).await?;
                send(&mut client, &answer).await?;
                if answer.0 == b'Z' {
                    idle = answer.1[4] == b'I';
                    break;
                }
            }
        }
        if !idle {
            held = Some(server);
        }
    }
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_with_what_to_do() {
    let url = database().await;
    let shared = Arc::new(Mutex::new(session(&url).await));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let pooling = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, Arc::clone(&shared)));
        }
    });
    let (user, rest) = url.split_once('@').unwrap();
    let (_, database) = rest.split_once('/').unwrap();
    let Err(error) = PostgresStore::open(options(&format!("{user}@{at}/{database}"), "a")).await else {
        panic!("the pooler was accepted")
    };
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    assert_eq!(error.reason(), "DatabaseUnsupported");
    assert!(error.to_string().contains("pool_mode = session"), "{error}");
    pooling.abort();
}
