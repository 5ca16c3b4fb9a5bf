//! Connections to exactly those addresses that were looked at.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Addresses, Endpoint, Error};

/// How long one address has to take a connection before the next one is tried.
const CONNECT: Duration = Duration::from_secs(5);

/// Finds the addresses of hosts.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a host, in the order in which they should be tried.
    ///
    /// # Errors
    /// Those of the resolver.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// As the operating system does it.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// Makes connections. What a name stands for is looked up once for each, checked, and then used: a second answer of the resolver, which
/// nobody checked, is never asked for.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) addresses: Arc<Addresses>,
    pub(super) resolve: Arc<dyn Resolve>,
    pub(super) tls: Arc<ClientConfig>,
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<Link, Error> {
        let endpoint = Endpoint::of(&uri)?;
        let stream = self.dial(&endpoint).await?;
        if !endpoint.tls {
            return Ok(Link { io: TokioIo::new(Box::new(stream)), http2: false });
        }
        let broken = |source| Error::Connect { endpoint: endpoint.to_string(), source: Arc::new(source) };
        let name =
            ServerName::try_from(endpoint.host.clone()).map_err(|error| broken(io::Error::other(error)))?;
        let stream = TlsConnector::from(self.tls).connect(name, stream).await.map_err(broken)?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Link { io: TokioIo::new(Box::new(stream)), http2 })
    }

    async fn dial(&self, endpoint: &Endpoint) -> Result<TcpStream, Error> {
        let Endpoint { host, port, .. } = endpoint;
        let no_address = |source| Error::Resolve { host: host.clone(), source: Arc::new(source) };
        let addresses = self.resolve.resolve(host, *port).await.map_err(no_address)?;
        let mut failed = no_address(io::Error::other("the name stands for nothing"));
        for address in addresses {
            if let Some(why) = self.addresses.refuse(address.ip()) {
                failed = Error::Refused { host: host.clone(), address: address.ip(), why };
                continue;
            }
            let connected = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    // Small requests should not wait for more to come.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => {
                    failed = Error::Connect { endpoint: endpoint.to_string(), source: Arc::new(error) };
                }
            }
        }
        Err(failed)
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Link;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Link, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection, with or without TLS.
pub(super) struct Link {
    io: TokioIo<Box<dyn Io>>,
    http2: bool,
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        if self.http2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
