//! The one way to services outside: what definitions ask by HTTP.
//!
//! Handlers of entities and steps of workflows are written by users, so what they can reach is limited: hosts that the [`Allow`] list
//! names, and never this machine, its neighbours on the link, or the cluster's control plane ([`Addresses`]). That is looked at after
//! names have been resolved, for each connection, and the connection goes to the address that was looked at.
//!
//! # Guarantees
//! - No redirect is followed. An answer is read up to a limit, within one time for everything.
//! - An endpoint that fails again and again is left alone for a while, and whoever asks is told so at once.
//! - Whether a failure is worth another attempt is said ([`Verdict`], [`Error::is_transient`]), never acted upon: retries belong to
//!   those who ask, who have them written down. Only a request that was certainly not sent is sent again.
//!
//! HTTP/2 is spoken with services that offer it in the TLS handshake, HTTP/1.1 with all others. Connections are kept and shared.

mod address;
mod allow;
mod answer;
mod breaker;
mod connect;
mod endpoint;
mod error;
mod metrics;
mod secrets;
mod sign;
mod trust;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use cleat_crds::http::{Auth, Headers, Tls, Value};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use self::breaker::Breaker;
use self::connect::Connector;
pub use address::Addresses;
pub use allow::{Allow, InvalidPattern, Pattern};
pub use answer::{Answer, Problem, Verdict};
pub use breaker::Limits;
pub use connect::{Resolve, System};
pub use endpoint::Endpoint;
pub use error::Error;
pub use metrics::Metrics;
pub use secrets::{Fixed, NoSecret, Secrets};
pub use sign::{SIGNATURE, signature};

/// How many sets of certificates have connections of their own, at most.
const TRUSTED: usize = 64;

/// How many endpoints are remembered for having failed, at most.
const REMEMBERED: usize = 10_000;

/// What may be asked, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The hosts that may be asked.
    pub allow: Allow,
    /// The addresses that may not.
    pub addresses: Addresses,
    /// How large an answer may be, in bytes.
    pub answer_limit: usize,
    /// When an endpoint is left alone.
    pub breaker: Limits,
    /// How long a connection is kept without being used.
    pub idle: Duration,
    /// Where it is measured what is asked.
    pub metrics: Option<Metrics>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow: Allow::default(),
            addresses: Addresses::default(),
            answer_limit: 4 << 20,
            breaker: Limits::default(),
            idle: Duration::from_secs(60),
            metrics: None,
        }
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// How.
    pub method: Method,
    /// Where.
    pub url: String,
    /// Headers as a definition says them, some from Secrets. They cannot take the place of those in `own`.
    pub headers: Headers,
    /// How it proves who sent it.
    pub auth: Option<Auth>,
    /// Whose certificates are believed.
    pub tls: Option<Tls>,
    /// Headers of whoever asks.
    pub own: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// How long everything may take: names, connection, request, and the whole answer.
    pub timeout: Duration,
}

type Pool = Client<Connector, Full<Bytes>>;

/// Asks services outside. Cheap to clone; clones share connections and what is known of endpoints.
#[derive(Clone)]
pub struct Egress(Arc<Inner>);

struct Inner {
    options: Options,
    addresses: Arc<Addresses>,
    resolve: Arc<dyn Resolve>,
    secrets: Arc<dyn Secrets>,
    /// Connections, by the certificates that are believed on them; none are those of this machine.
    pools: Mutex<HashMap<Option<Bytes>, Pool>>,
    breakers: Mutex<HashMap<Endpoint, Breaker>>,
}

impl Egress {
    /// A way out under these rules.
    pub fn new(options: Options, secrets: Arc<dyn Secrets>) -> Self {
        Self::resolving(options, secrets, Arc::new(System))
    }

    /// The same with another resolver of names.
    pub fn resolving(options: Options, secrets: Arc<dyn Secrets>, resolve: Arc<dyn Resolve>) -> Self {
        let addresses = Arc::new(options.addresses.clone());
        let (pools, breakers) = Default::default();
        Self(Arc::new(Inner { options, addresses, resolve, secrets, pools, breakers }))
    }

    /// Asks once.
    ///
    /// # Errors
    /// [`Error`] if there is no answer. Whatever status an answer has, it is one.
    pub async fn send(&self, request: Request) -> Result<Answer, Error> {
        let uri = endpoint::uri(&request.url)?;
        let endpoint = Endpoint::of(&uri)?;
        let began = Instant::now();
        let answer = self.0.answer(uri, &endpoint, request).await;
        if let Some(metrics) = &self.0.options.metrics {
            metrics.ended(&endpoint, &answer, began.elapsed().as_secs_f64());
        }
        if let Err(error) = &answer {
            tracing::debug!(%endpoint, reason = error.reason(), error = error as &dyn std::error::Error, "no answer");
        }
        answer
    }
}

impl Inner {
    /// Asks who may be asked, and waits as long as the request has time.
    async fn answer(&self, uri: http::Uri, endpoint: &Endpoint, request: Request) -> Result<Answer, Error> {
        if !self.options.allow.permits(&endpoint.host, endpoint.port) {
            return Err(Error::NotAllowed(endpoint.to_string()));
        }
        let timeout = request.timeout;
        let ending = tokio::time::timeout(timeout, self.ask(uri, endpoint, request)).await;
        ending.unwrap_or_else(|_| {
            self.note(endpoint, false);
            Err(Error::TimedOut { endpoint: endpoint.to_string(), timeout })
        })
    }

    async fn ask(&self, uri: http::Uri, endpoint: &Endpoint, request: Request) -> Result<Answer, Error> {
        let headers = self.headers(&request).await?;
        let pool = self.pool(endpoint, request.tls.as_ref()).await?;
        let mut outgoing = http::Request::new(Full::new(request.body));
        *outgoing.method_mut() = request.method;
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = headers;
        // Last, so that a trial that was admitted is made.
        self.admit(endpoint)?;
        let answer = self.exchange(&pool, endpoint, outgoing).await;
        let well = match &answer {
            Ok(answer) => !answer.status.is_server_error(),
            Err(error) => !error.blames_endpoint(),
        };
        self.note(endpoint, well);
        answer
    }

    async fn exchange(
        &self,
        pool: &Pool,
        endpoint: &Endpoint,
        request: http::Request<Full<Bytes>>,
    ) -> Result<Answer, Error> {
        let answer = pool.request(request).await.map_err(|error| untangle(endpoint, error))?;
        let (head, body) = answer.into_parts();
        let limit = self.options.answer_limit;
        let body = Limited::new(body, limit).collect().await.map_err(|source| {
            let endpoint = endpoint.to_string();
            if source.is::<http_body_util::LengthLimitError>() {
                Error::TooLarge { endpoint, limit }
            } else {
                Error::Broken { endpoint, source: source.into() }
            }
        })?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// All headers: those of the definition, what proves the sender, and those of whoever asks.
    async fn headers(&self, request: &Request) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("cleat/", env!("CARGO_PKG_VERSION"))),
        );
        for (name, value) in &request.headers {
            let wrong = |why| Error::Header { name: name.clone(), why };
            let value = match value {
                Value::Value(text) => HeaderValue::from_str(text),
                Value::SecretRef(key) => {
                    HeaderValue::from_bytes(trimmed(&self.secrets.get(key).await?)).map(secret)
                }
            };
            let value = value.map_err(|_| wrong("its value has characters that headers cannot have"))?;
            let known =
                HeaderName::try_from(name.as_str()).map_err(|_| wrong("this is no name of a header"))?;
            headers.insert(known, value);
        }
        match &request.auth {
            Some(Auth::Bearer(bearer)) => {
                let token = self.secrets.get(&bearer.secret_ref).await?;
                let value = [b"Bearer ", trimmed(&token)].concat();
                let wrong = |_| Error::Header {
                    name: header::AUTHORIZATION.to_string(),
                    why: "the Secret has characters that headers cannot have",
                };
                headers.insert(
                    header::AUTHORIZATION,
                    HeaderValue::from_bytes(&value).map(secret).map_err(wrong)?,
                );
            }
            Some(Auth::Hmac(hmac)) => {
                let key = self.secrets.get(&hmac.secret_ref).await?;
                let signature = signature(trimmed(&key), &request.body, SystemTime::now());
                let wrong = |_| Error::Header { name: SIGNATURE.to_owned(), why: "it is not text" };
                headers.insert(SIGNATURE, HeaderValue::try_from(signature).map_err(wrong)?);
            }
            None => {}
        }
        headers.extend(request.own.clone());
        Ok(headers)
    }

    /// The connections on which the certificates that are asked for are believed.
    async fn pool(&self, endpoint: &Endpoint, tls: Option<&Tls>) -> Result<Pool, Error> {
        let certificates = match tls.and_then(|tls| tls.ca.as_ref()).filter(|_| endpoint.tls) {
            Some(ca) => Some(self.secrets.get(&ca.secret_ref).await?),
            None => None,
        };
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&certificates) {
            return Ok(pool.clone());
        }
        let tls = trust::config(certificates.as_deref())
            .map_err(|why| Error::Trust { endpoint: endpoint.to_string(), why })?;
        let connector =
            Connector { addresses: Arc::clone(&self.addresses), resolve: Arc::clone(&self.resolve), tls };
        let pool = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(self.options.idle)
            .build(connector);
        // Certificates are replaced now and then: what is not asked for any more goes with its connections.
        if pools.len() >= TRUSTED {
            pools.clear();
        }
        pools.insert(certificates, pool.clone());
        Ok(pool)
    }

    /// Whether an endpoint may be asked now.
    fn admit(&self, endpoint: &Endpoint) -> Result<(), Error> {
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(breaker) = breakers.get_mut(endpoint) else { return Ok(()) };
        breaker
            .admit(Instant::now(), self.options.breaker)
            .map_err(|again| Error::Open { endpoint: endpoint.to_string(), again })
    }

    /// Takes note of how an endpoint is.
    fn note(&self, endpoint: &Endpoint, well: bool) {
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        if well {
            if breakers.remove(endpoint).is_some_and(|breaker| !breaker.is_closed()) {
                self.opened(-1);
            }
            return;
        }
        if breakers.len() >= REMEMBERED {
            breakers.retain(|_, breaker| !breaker.is_closed());
        }
        if breakers.len() >= REMEMBERED && !breakers.contains_key(endpoint) {
            return;
        }
        let breaker = breakers.entry(endpoint.clone()).or_insert(Breaker::Closed(0));
        if breaker.fail(Instant::now(), self.options.breaker) {
            self.opened(1);
            tracing::warn!(%endpoint, pause = ?self.options.breaker.pause, "failed too often and is left alone for a while");
        }
    }

    /// So many more endpoints are left alone.
    fn opened(&self, more: i64) {
        if let Some(metrics) = &self.options.metrics {
            metrics.open.add(more);
        }
    }
}

/// What went wrong, in our words if it was ours.
fn untangle(endpoint: &Endpoint, error: legacy::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(&error);
    while let Some(source) = cause {
        if let Some(ours) = source.downcast_ref::<Error>() {
            return ours.clone();
        }
        cause = source.source();
    }
    Error::Broken { endpoint: endpoint.to_string(), source: Arc::new(error) }
}

/// A value that is not shown when headers are.
fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Secrets often end with a line break that nobody meant.
fn trimmed(secret: &[u8]) -> &[u8] {
    secret.trim_ascii_end()
}
