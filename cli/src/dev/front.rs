//! One address for all gateways, as a Service is.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use kube::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::ready::gateways;

/// Listens on this machine and hands each connection to a runner that is ready.
///
/// # Errors
/// The port is taken.
pub async fn listen(
    port: u16,
    client: Client,
    namespace: &'static str,
    stop: CancellationToken,
) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .with_context(|| format!("port {port} is taken: choose another one with --port, or 0 for any"))?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut turn = 0_usize;
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((connection, _)) = accepted else { continue };
            turn = turn.wrapping_add(1);
            tokio::spawn(forward(connection, client.clone(), namespace, turn));
        }
    });
    Ok(address)
}

async fn forward(mut from: TcpStream, client: Client, namespace: &str, turn: usize) {
    let ready = match gateways(&client, namespace).await {
        Ok(ready) => ready,
        Err(error) => return tracing::warn!(%error, "cannot find a runner"),
    };
    for step in 0..ready.len() {
        let Some(address) = ready.get((turn + step) % ready.len()) else { return };
        if let Ok(mut to) = TcpStream::connect(address).await {
            // Whoever hangs up ends it for both.
            let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            return;
        }
    }
    tracing::warn!("no runner is ready");
}
