//! One connection: HTTP/1 or HTTP/2 by what it begins with, within limits.

use std::convert::Infallible;
use std::io::{Cursor, ErrorKind};
use std::sync::Arc;

use http::HeaderValue;
use http::header::CONNECTION;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::desk::Desk;

/// What a connection of HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How many requests one connection of HTTP/2 makes at once.
const STREAMS: u32 = 256;

/// Serves a connection to its end.
pub(super) async fn serve(mut stream: TcpStream, desk: Arc<Desk>, watcher: Watcher) {
    // Small writes of streams are not to wait for each other.
    let _ = stream.set_nodelay(true);
    let (begun, stopped) = (begin(&mut stream), desk.stop.cancelled());
    let begun = tokio::select! {
        begun = tokio::time::timeout(desk.options.read, begun) => begun,
        () = stopped => return,
    };
    // Whoever says nothing, or nothing whole, is not waited for.
    let Ok(Ok((is_http2, read))) = begun else { return };
    let (reading, writing) = stream.into_split();
    let io = TokioIo::new(tokio::io::join(Cursor::new(read).chain(reading), writing));
    let ended = if is_http2 { two(io, desk, watcher).await } else { one(io, desk, watcher).await };
    if let Err(error) = ended {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended badly");
    }
}

async fn one(
    io: TokioIo<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    desk: Arc<Desk>,
    watcher: Watcher,
) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(desk.options.read)
        .max_header_size(desk.options.headers)
        // A caller may say all that it has to say, close its half and wait for the answer.
        .half_close(true);
    let service = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move {
            let mut response = Arc::clone(&desk).answer(request).await;
            // Whoever asks again does so elsewhere. If connections were only closed in the end, requests could be on their way on them.
            if desk.is_leaving() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    watcher.watch(builder.serve_connection(io, service)).await
}

async fn two(
    io: TokioIo<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    desk: Arc<Desk>,
    watcher: Watcher,
) -> hyper::Result<()> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(desk.options.headers).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(desk.options.read)
        .keep_alive_timeout(desk.options.read);
    let service = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, Infallible>(desk.answer(request).await) }
    });
    watcher.watch(builder.serve_connection(io, service)).await
}

/// Whether a connection begins as HTTP/2 does, and what was read to find that out.
async fn begin(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(bool, Vec<u8>)> {
    let mut read = Vec::with_capacity(PREFACE.len());
    while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
        let missing = u64::try_from(PREFACE.len() - read.len()).unwrap_or(0);
        if stream.take(missing).read_buf(&mut read).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((read == PREFACE, read))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_told_apart_by_what_it_begins_with_however_it_comes() {
        let cases: [(&[&[u8]], Option<bool>); 5] = [
            (&[b"GET / HTTP/1.1\r\n"], Some(false)),
            (&[b"PRI * HT", b"TP/2.0\r\n\r\nSM\r\n\r\n", b"frames"], Some(true)),
            (&[b"P", b"OST / HTTP/1.1\r\n"], Some(false)),
            (&[b"PRI * HTTP/2.0\r\n"], None),
            (&[], None),
        ];
        for (parts, expected) in cases {
            let (mut ours, mut theirs) = tokio::io::duplex(64);
            let sent: Vec<u8> = parts.concat();
            let send = async {
                for part in parts {
                    theirs.write_all(part).await.unwrap();
                    tokio::task::yield_now().await;
                }
                drop(theirs);
            };
            let (begun, ()) = tokio::join!(begin(&mut ours), send);
            match (begun, expected) {
                (Ok((is_http2, read)), Some(expected)) => {
                    assert_eq!(is_http2, expected);
                    assert!(sent.starts_with(&read), "nothing is lost");
                }
                (Err(_), None) => {}
                (begun, _) => panic!("{parts:?}: {begun:?}"),
            }
        }
    }
}
