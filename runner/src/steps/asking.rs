//! From templates to what is asked, waited for and started.

use std::time::{Duration, SystemTime};

use chrono::DateTime;
use cleat_cel::{Template, Value};
use cleat_crds::http::{Headers, Value as HeaderValue};
use serde_json::Value as Json;

use super::program::{Act, Header, Retry};
use super::reach::{self, Question};
use super::run::{Halt, Run};
use super::scope::Scope;
use super::stop::{Stop, unless};
use crate::message::{Defect, EntityAddress, EntityId, Outcome, codec};
use crate::workflow::{Child, Definition, Key, Policy};

impl Run {
    /// What is asked, with all expressions evaluated.
    pub(super) fn question(
        &self,
        act: &Act,
        scope: &Scope,
        path: &str,
        field: &str,
    ) -> Result<Question, Halt> {
        let at = |part: &str| format!("{field}.{part}");
        match act {
            Act::Call { entity, id, method, input } => Ok(Question::Call {
                entity: entity.clone(),
                id: self.text(id, scope, path, &at("id"))?,
                method: method.clone(),
                input: self.optional(input.as_ref(), scope, path, &at("input"))?.unwrap_or_default(),
            }),
            Act::Http(http) => {
                let url = self.text(&http.url, scope, path, &at("url"))?;
                let mut headers = Headers::new();
                for (name, header) in &http.headers {
                    let value = match header {
                        Header::Text(text) => HeaderValue::Value(self.text(
                            text,
                            scope,
                            path,
                            &at(&format!("headers.{name}")),
                        )?),
                        Header::Secret(key) => HeaderValue::SecretRef(key.clone()),
                    };
                    headers.insert(name.clone(), value);
                }
                let body = self.optional(http.body.as_ref(), scope, path, &at("body"))?;
                let mut request = reach::request(&http.method, url, headers, body.as_ref());
                request.auth.clone_from(&http.auth);
                request.tls.clone_from(&http.tls);
                Ok(Question::Http(Box::new(request)))
            }
        }
    }

    fn optional(
        &self,
        template: Option<&Template>,
        scope: &Scope,
        path: &str,
        field: &str,
    ) -> Result<Option<Json>, Halt> {
        template.map(|template| self.json(template, scope, path, field)).transpose()
    }

    /// How long to sleep. What lies in the past is over.
    pub(super) fn duration(&self, template: &Template, scope: &Scope, path: &str) -> Result<Duration, Halt> {
        match self.value(template, scope, path, "sleep")? {
            Value::Duration(nanos) => Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))),
            Value::String(text) => text
                .parse::<cleat_crds::Duration>()
                .map(cleat_crds::Duration::get)
                .map_err(|error| Halt::expression(path, "sleep", error)),
            other => {
                let message = format!("this gives {}, and a duration is wanted", other.type_name());
                Err(Halt::expression(path, "sleep", message))
            }
        }
    }

    /// Until when to sleep.
    pub(super) fn time(&self, template: &Template, scope: &Scope, path: &str) -> Result<SystemTime, Halt> {
        match self.value(template, scope, path, "until")? {
            Value::Timestamp(time) => Ok(time.into()),
            Value::String(text) => DateTime::parse_from_rfc3339(&text)
                .map(Into::into)
                .map_err(|_| Halt::expression(path, "until", format!("{text:?} is not a time"))),
            other => {
                let message = format!("this gives {}, and a time is wanted", other.type_name());
                Err(Halt::expression(path, "until", message))
            }
        }
    }

    /// Starts another workflow and waits for its end; if it is to be tried again, starts another execution.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of one step")]
    pub(super) async fn workflow(
        &self,
        workflow: &str,
        key: Option<&Template>,
        input: Option<&Template>,
        retry: Option<Retry>,
        path: &str,
        scope: &Scope,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        let malformed =
            |error: &dyn std::error::Error| Halt::failed("Malformed", format!("step {path}: {error}"));
        let definition = Definition::new(workflow).map_err(|error| malformed(&error))?;
        let key = key.map(|key| self.text(key, scope, path, "workflow.key")).transpose()?;
        let id = match &key {
            Some(key) => EntityId::new(&Key::Hashed(key.clone()).id()).map_err(|error| malformed(&error))?,
            None => self.context.about().address.id.clone(),
        };
        let input = self.optional(input, scope, path, "workflow.input")?.unwrap_or_default();
        let input = codec::encode(&input).map_err(|error| malformed(&error))?;
        let child = Child {
            address: EntityAddress { entity_type: definition.entity_type, id },
            path: path.to_owned(),
            named: key.is_some(),
            group: None,
            input: input.into(),
            policy: Policy::Cancel,
        };
        let attempts = retry.map_or(1, |retry| retry.attempts.unwrap_or(u32::MAX));
        let mut failed = 0;
        loop {
            let halt = match unless(stop, self.context.child(child.clone())).await? {
                Outcome::Success(output) => return self.received_value(path, &output),
                Outcome::Failure(failure) => Halt::Failed(failure),
                Outcome::Defect(Defect { kind, message }) => {
                    Halt::failed(&kind, format!("step {path}: {message}"))
                }
            };
            failed += 1;
            let Some(retry) = retry.filter(|_| failed < attempts) else { return Err(halt) };
            unless(stop, self.context.sleep_named(&format!("{path}:retry"), retry.pause(failed))).await?;
        }
    }
}
