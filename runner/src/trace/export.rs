//! Takes spans to a collector.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use prometheus::IntCounterVec;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Ended, Options, otlp};

/// How much of an answer is read.
const ANSWER: usize = 64 * 1024;

/// Takes the spans of a recorder to a collector, for as long as it is [run](Self::run).
pub struct Exporter {
    options: Options,
    spans: mpsc::Receiver<Ended>,
    results: IntCounterVec,
    connection: Option<Connection>,
    /// Whether the last batch failed: trouble is told once.
    failing: bool,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("it cannot be reached")]
    Connect(#[source] std::io::Error),
    #[error("the connection broke")]
    Connection(#[from] hyper::Error),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("it did not answer in time")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error("the request cannot be made")]
    Request(#[from] hyper::http::Error),
    #[error("the spans cannot be written")]
    Write(#[from] serde_json::Error),
}

impl Exporter {
    pub(super) fn new(options: Options, spans: mpsc::Receiver<Ended>, results: IntCounterVec) -> Self {
        Self { options, spans, results, connection: None, failing: false }
    }

    /// Runs until it is stopped, or until nobody records any more. What waits by then is taken along, once.
    pub async fn run(mut self, stop: CancellationToken) {
        self.export_until(stop).await;
    }

    pub(crate) async fn export_until(&mut self, stop: CancellationToken) {
        let most = self.options.batch.max(1);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                () = self.gather(&mut batch, most) => {}
                () = stop.cancelled() => break,
            }
            if batch.is_empty() {
                return;
            }
            self.export(&mut batch).await;
        }
        // Whoever still records is dropped from now on.
        self.spans.close();
        let last = async {
            while !batch.is_empty() || self.spans.recv_many(&mut batch, most).await > 0 {
                self.export(&mut batch).await;
                if self.failing {
                    return;
                }
            }
        };
        let _ = timeout(Duration::from_secs(5), last).await;
    }

    /// Waits for spans, and for others to go with the first. None come when there is nobody to record any.
    ///
    /// # Cancel safety
    /// What was taken is in the batch.
    async fn gather(&mut self, batch: &mut Vec<Ended>, most: usize) {
        if batch.is_empty() && self.spans.recv_many(batch, most).await == 0 {
            return;
        }
        let others = async {
            while batch.len() < most && self.spans.recv_many(batch, most - batch.len()).await > 0 {}
        };
        let _ = timeout(self.options.linger, others).await;
    }

    async fn export(&mut self, batch: &mut Vec<Ended>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let sent = self.send(batch).await;
        batch.clear();
        let result = if sent.is_ok() { "exported" } else { "failed" };
        self.results.with_label_values(&[result]).inc_by(count);
        match sent {
            Ok(()) => self.failing = false,
            Err(error) => {
                self.connection = None;
                if !std::mem::replace(&mut self.failing, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(endpoint = %self.options.endpoint, error, "the collector does not take traces");
                }
            }
        }
    }

    async fn send(&mut self, batch: &[Ended]) -> Result<(), Error> {
        let body = Bytes::from(otlp::body(&self.options.resource, batch)?);
        let kept = self.connection.is_some();
        match self.post(body.clone()).await {
            // A connection that was kept may have been closed by the other side meanwhile.
            Err(Error::Connection(_)) if kept => {
                self.connection = None;
                self.post(body).await
            }
            sent => sent,
        }
    }

    async fn post(&mut self, body: Bytes) -> Result<(), Error> {
        let patience = self.options.timeout;
        timeout(patience, self.exchange(body)).await?
    }

    async fn exchange(&mut self, body: Bytes) -> Result<(), Error> {
        let endpoint = &self.options.endpoint;
        if let Some(connection) = &mut self.connection
            && connection.sender.ready().await.is_err()
        {
            self.connection = None;
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let stream = TcpStream::connect(endpoint.authority()).await.map_err(Error::Connect)?;
                let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
                let driver = AbortOnDropHandle::new(tokio::spawn(async move {
                    // Whoever asks is told.
                    let _ = driver.await;
                }));
                none.insert(Connection { sender, _driver: driver })
            }
        };
        let request = Request::post(endpoint.path())
            .header(header::HOST, endpoint.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = connection.sender.send_request(request).await?;
        let status = answer.status();
        // Read to its end, so that the connection can be used again.
        if Limited::new(answer.into_body(), ANSWER).collect().await.is_err() {
            self.connection = None;
        }
        if status.is_success() { Ok(()) } else { Err(Error::Refused(status)) }
    }
}
