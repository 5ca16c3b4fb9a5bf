//! Asking a gateway.

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::output::waiting;
use crate::target::{Connection, Target};

/// A gateway that listens.
pub struct Gateway {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    token: Option<String>,
}

/// What to ask.
#[derive(Debug, Clone)]
pub struct Question {
    method: Method,
    path: String,
    body: Option<Value>,
    headers: Vec<(&'static str, String)>,
}

impl Question {
    /// Looks at something.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None, headers: Vec::new() }
    }

    /// Does something.
    pub fn post(path: impl Into<String>, body: Option<Value>) -> Self {
        Self { method: Method::POST, body, ..Self::get(path) }
    }

    /// Removes something.
    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    /// The same with a header, if there is one.
    pub fn header(mut self, name: &'static str, value: Option<String>) -> Self {
        self.headers.extend(value.map(|value| (name, value)));
        self
    }
}

impl Gateway {
    /// Finds a gateway and connects to it.
    pub async fn find(target: &Target) -> Result<Self> {
        let Connection { stream, host, token } = waiting("looking for a gateway", target.connect()).await?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.context("the gateway does not speak HTTP")?;
        tokio::spawn(connection);
        Ok(Self { sender, host, token })
    }

    /// Asks, and gives what was answered: `null` if that is nothing.
    pub async fn ask(&mut self, question: Question) -> Result<Value> {
        Ok(waiting("waiting for the answer", self.answer(question)).await?.1)
    }

    /// The same with the status.
    pub async fn answer(&mut self, question: Question) -> Result<(StatusCode, Value)> {
        let response = self.send(question).await?;
        let status = response.status();
        let body = response.into_body().collect().await.context("the gateway's answer broke off")?.to_bytes();
        if body.is_empty() {
            return Ok((status, Value::Null));
        }
        Ok((status, serde_json::from_slice(&body).context("the gateway's answer is not JSON")?))
    }

    /// Whether it says that it is ready.
    pub async fn is_ready(&mut self) -> Result<()> {
        self.send(Question::get("/readyz")).await.map(drop)
    }

    /// Asks for a stream, and gives what comes as it comes.
    pub async fn stream(&mut self, question: Question) -> Result<Incoming> {
        let question = question.header("accept", Some("text/event-stream".to_owned()));
        Ok(waiting("waiting for the stream", self.send(question)).await?.into_body())
    }

    async fn send(&mut self, question: Question) -> Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(question.method)
            .uri(question.path)
            .header(HOST, &self.host)
            .header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in question.headers {
            if name == "accept" {
                request.headers_mut().map(|headers| headers.remove(ACCEPT));
            }
            request = request.header(name, value);
        }
        let body = match question.body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                serde_json::to_vec(&body)?.into()
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(body)).context("that cannot be asked")?;
        self.sender.ready().await.context("the gateway has hung up")?;
        let response = self.sender.send_request(request).await.context("the gateway has hung up")?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(problem(response).await)
    }
}

/// What a gateway says went wrong, for people.
async fn problem(response: Response<Incoming>) -> anyhow::Error {
    let status = response.status();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let Ok(problem) = serde_json::from_slice::<Value>(&body) else {
        return anyhow!("the gateway answers {status}");
    };
    let text = |field: &str| problem.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (reason, detail) = (text("reason"), text("detail"));
    let mut message = match (reason.is_empty(), detail.is_empty()) {
        (false, false) => format!("{reason}: {detail}"),
        (false, true) => reason,
        (true, false) => detail,
        (true, true) => format!("the gateway answers {status}"),
    };
    if status == StatusCode::UNAUTHORIZED {
        message.push_str(
            "\nhint: pass a token with --token, for example from `kubectl create token <service account>`",
        );
    }
    anyhow!(message)
}

/// A part of a path, with everything escaped that could be taken for something else.
pub fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_cannot_be_taken_for_more() {
        assert_eq!(segment("order/1?a=b c"), "order%2F1%3Fa%3Db%20c");
        assert_eq!(segment("ü-._~"), "%C3%BC-._~");
    }
}
