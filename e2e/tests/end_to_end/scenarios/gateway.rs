//! Asking the gateway, as a program of the user's would.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// The gateway of a Cluster, and who asks it.
#[derive(Clone)]
pub struct Gateway {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    token: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Value,
}

impl Reply {
    /// The word that says what is wrong.
    pub fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }
}

impl Gateway {
    pub fn new(url: String, token: Option<String>) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), url, token }
    }

    /// The same with another token, or none.
    pub fn with_token(&self, token: Option<String>) -> Self {
        Self { token, ..self.clone() }
    }

    /// Asks an entity.
    pub async fn call(&self, entity: &str, method: &str, input: &Value, key: Option<&str>) -> Result<Reply> {
        self.send(Method::POST, &format!("/v1/entities/{entity}/{method}"), Some(input), key).await
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Reply> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let body = match body {
            Some(value) => {
                request = request.header("content-type", "application/json");
                serde_json::to_vec(value)?
            }
            None => Vec::new(),
        };
        let asked = async {
            let response = self.client.request(request.body(Full::from(body))?).await?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            let body = if bytes.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&bytes)
                    .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
            };
            anyhow::Ok(Reply { status, body })
        };
        tokio::time::timeout(PATIENCE, asked).await.context("no answer")?
    }
}
