//! Asking a server.

use crate::case::{File, Step};
use crate::normal::normalize;
use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What happens in the background has so long to happen. A real garbage collector looks for new kinds twice a minute.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(50);

/// What kind of server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The one of this project, which has documented differences.
    Embedded,
    /// A kube-apiserver, which has none.
    Real,
}

/// A server that is asked.
#[derive(Clone)]
pub struct Server {
    client: Client,
    target: Target,
}

/// What came of a file of cases.
#[derive(Debug, Default)]
pub struct Report {
    /// How many cases were as expected.
    pub passed: usize,
    /// What was not, in words.
    pub failures: Vec<String>,
}

/// An answer as it came.
struct Answer {
    code: u16,
    value: Value,
}

impl Server {
    /// A server behind a client.
    #[must_use]
    pub fn new(client: Client, target: Target) -> Self {
        Self { client, target }
    }

    /// Runs a file: makes what it needs, asks, compares, and cleans up.
    ///
    /// # Errors
    /// The server cannot be reached or what the cases need cannot be made.
    pub async fn check(&self, name: &str, file: &File) -> Result<Report> {
        self.set_up(file).await?;
        let mut report = Report::default();
        for case in &file.cases {
            let mut saved = BTreeMap::new();
            let mut fine = true;
            for (index, step) in case.steps.iter().enumerate() {
                let (code, answer) = self.ask(step, &mut saved).await?;
                if let Some(failure) = self.compare(step, code, &answer) {
                    report.failures.push(format!(
                        "{name} / {} / step {}: {}\n{failure}",
                        case.name,
                        index + 1,
                        step.text("do")
                    ));
                    fine = false;
                }
            }
            report.passed += usize::from(fine);
        }
        self.tear_down(file).await?;
        Ok(report)
    }

    /// Runs a file and writes down what the server answers.
    ///
    /// # Errors
    /// The server cannot be reached or what the cases need cannot be made.
    pub async fn record(&self, file: &mut File) -> Result<()> {
        self.set_up(file).await?;
        for case in &mut file.cases {
            let mut saved = BTreeMap::new();
            for step in &mut case.steps {
                let (code, answer) = self.ask(step, &mut saved).await?;
                let fields = step.0.as_object_mut().context("a step is an object")?;
                fields.insert("code".to_owned(), json!(code));
                fields.remove("answer");
                if !fields.contains_key("ignore") {
                    fields.insert("answer".to_owned(), answer);
                }
            }
        }
        self.tear_down(file).await
    }

    fn compare(&self, step: &Step, code: u16, answer: &Value) -> Option<String> {
        let mut wanted = step.0["answer"].clone();
        normalize(&mut wanted, &BTreeMap::new());
        if step.0["code"] != json!(code) {
            return Some(format!("  wanted code {}, got {code}: {answer}", step.0["code"]));
        }
        let excuse = if self.target == Target::Embedded { "differs" } else { "beside" };
        let excused = step.0.get(excuse).is_some();
        if wanted.is_null() || excused || wanted == *answer {
            return None;
        }
        Some(format!("  wanted {wanted}\n  got    {answer}"))
    }

    async fn ask(&self, step: &Step, saved: &mut BTreeMap<String, String>) -> Result<(u16, Value)> {
        let wanted = step.0.get("until").and_then(Value::as_u64);
        let started = Instant::now();
        let mut answer = self.send(step, saved).await.with_context(|| step.text("do").to_owned())?;
        while wanted.is_some_and(|wanted| wanted != u64::from(answer.code)) && started.elapsed() < PATIENCE {
            tokio::time::sleep(PAUSE).await;
            answer = self.send(step, saved).await?;
        }
        if let Some(settle) = step.0.get("settle") {
            let probe = Step(settle.clone());
            while self.send(&probe, saved).await?.code < 400 && started.elapsed() < PATIENCE {
                tokio::time::sleep(PAUSE).await;
            }
        }
        for (name, path) in step.0["save"].as_object().into_iter().flatten() {
            let pointer = format!("/{}", path.as_str().unwrap_or_default().replace('.', "/"));
            if let Some(value) = answer.value.pointer(&pointer) {
                saved.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
        }
        let mut value = answer.value;
        if step.0["names"] == true && answer.code == 200 {
            let items = value["items"].as_array().cloned().unwrap_or_default();
            let names: Vec<&Value> = items.iter().map(|item| &item["metadata"]["name"]).collect();
            value = json!({ "names": names });
        }
        normalize(&mut value, saved);
        Ok((answer.code, value))
    }

    async fn send(&self, step: &Step, saved: &BTreeMap<String, String>) -> Result<Answer> {
        let line = filled(step.text("do"), saved);
        let (method, path) = line.split_once(' ').context("a method and a path")?;
        let body = match (&step.0["send"], step.0["text"].as_str()) {
            (_, Some(text)) => filled(text, saved).into_bytes(),
            (Value::Null, None) => Vec::new(),
            (value, None) => filled(&value.to_string(), saved).into_bytes(),
        };
        let or = |text: &str| if text.is_empty() { "application/json".to_owned() } else { text.to_owned() };
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes())?)
            .uri(path)
            .header("accept", or(step.text("accept")))
            .header("user-agent", "conformance");
        if !body.is_empty() {
            request = request.header("content-type", or(step.text("type")));
        }
        let response = self.client.send(request.body(Body::from(body))?).await?;
        let code = response.status().as_u16();
        let mut warnings: Vec<String> = response
            .headers()
            .get_all("warning")
            .iter()
            .filter_map(|value| value.to_str().ok().map(str::to_owned))
            .collect();
        warnings.sort();
        let mut value = match step.0["watch"].as_u64() {
            Some(count) if code == 200 => events(response.into_body(), count).await?,
            _ => {
                let bytes = response.into_body().collect().await?.to_bytes();
                serde_json::from_slice(&bytes)
                    .unwrap_or_else(|_| json!({ "text": String::from_utf8_lossy(&bytes) }))
            }
        };
        if !warnings.is_empty() && value.is_object() {
            value["_warnings"] = json!(warnings);
        }
        Ok(Answer { code, value })
    }

    async fn quick(&self, line: &str, send: Value) -> Result<Answer> {
        self.send(&Step(json!({ "do": line, "send": send })), &BTreeMap::new()).await
    }

    async fn set_up(&self, file: &File) -> Result<()> {
        self.tear_down(file).await?;
        for definition in &file.setup {
            let answer = self.quick(&format!("POST {DEFINITIONS}"), definition.clone()).await?;
            if answer.code != 201 {
                bail!("the set-up was refused: {}", answer.value);
            }
            let spec = &definition["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (group, version) = (text(&spec["group"]), text(&spec["versions"][0]["name"]));
            let list = format!("GET /apis/{group}/{version}/{}", text(&spec["names"]["plural"]));
            // A resource is served first and described later, and some writes need the description.
            let schema = format!("GET /openapi/v3/apis/{group}/{version}");
            let kind = format!(".{}\"", text(&spec["names"]["kind"]));
            self.wait(|| async {
                let listed = self.quick(&list, Value::Null).await?.code == 200;
                Ok(listed && self.quick(&schema, Value::Null).await?.value.to_string().contains(&kind))
            })
            .await?;
        }
        Ok(())
    }

    async fn tear_down(&self, file: &File) -> Result<()> {
        for definition in &file.setup {
            let path =
                format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
            self.quick(&format!("DELETE {path}"), Value::Null).await?;
            let get = format!("GET {path}");
            self.wait(|| async { Ok(self.quick(&get, Value::Null).await?.code == 404) }).await?;
        }
        Ok(())
    }

    async fn wait<F: Future<Output = Result<bool>>>(&self, done: impl Fn() -> F) -> Result<()> {
        let started = Instant::now();
        while !done().await? {
            if started.elapsed() > PATIENCE {
                bail!("what was waited for did not happen");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Text with the saved values in it.
fn filled(text: &str, saved: &BTreeMap<String, String>) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

/// The first events of a watch.
async fn events(body: Body, count: u64) -> Result<Value> {
    let stream = body.into_data_stream().map_err(std::io::Error::other);
    let lines = stream.into_async_read().lines();
    let limit = usize::try_from(count)?;
    let read = lines
        .take(limit)
        .map(|line| Ok(serde_json::from_str::<Value>(&line?)?))
        .collect::<Vec<Result<Value>>>();
    let events = tokio::time::timeout(PATIENCE, read).await.context("the watch brought too few events")?;
    Ok(json!({ "events": events.into_iter().collect::<Result<Vec<_>>>()? }))
}
