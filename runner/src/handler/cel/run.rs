//! One call of a method.

use chrono::{DateTime, Utc};
use cleat_cel::path::Changes;
use cleat_cel::{Bindings, Budget, Fault, Template, Type, Value};
use serde_json::Value as Json;

use super::{Method, Send, budget};
use crate::handler::Schema;
use crate::handler::sending::{Sending, span};
use crate::message::EntityAddress;

/// What a call is given.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// Who is asked.
    pub address: &'a EntityAddress,
    /// What the caller gave.
    pub input: &'a Json,
    /// The state before the call.
    pub state: &'a Json,
    /// When it began.
    pub now: DateTime<Utc>,
    /// What the next state must be.
    pub schema: Option<&'a Schema>,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The reply.
    pub output: Json,
    /// The state after the call, if it changes.
    pub state: Option<Json>,
    /// The messages that go out with it.
    pub sends: Vec<Sending>,
}

/// Why a call changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// One CamelCase word.
    pub reason: String,
    /// The same for people.
    pub message: String,
}

impl Refused {
    fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

impl Method {
    /// What the call does, or why it does nothing.
    ///
    /// # Errors
    /// [`Refused`] with the reason of what was required, or that of an expression that has no result, and where that is.
    pub fn call(&self, given: Given<'_>) -> Result<Done, Refused> {
        let mut budget = budget();
        let mut bindings = self.bindings(given)?;
        let holds = match &self.when {
            Some(when) => when
                .holds(&bindings, &mut budget)
                .map_err(|error| at("when", error.reason(), error.located()))?,
            None => true,
        };
        if !holds {
            return Ok(Done { output: self.output(&bindings, &mut budget)?, state: None, sends: Vec::new() });
        }
        self.required(&bindings, &mut budget)?;
        let state = self.next_state(given, &bindings, &mut budget)?;
        if let Some(state) = &state {
            bindings.set("state", read(self.scope.state.as_ref(), state)?);
        }
        let output = self.output(&bindings, &mut budget)?;
        let mut sends = Vec::new();
        for (index, send) in self.send.iter().enumerate() {
            sends.extend(send.sending(index, &bindings, &mut budget)?);
        }
        Ok(Done { output, state, sends })
    }

    fn bindings(&self, given: Given<'_>) -> Result<Bindings<'static>, Refused> {
        let address = given.address;
        let text = |text: &str| Json::from(text);
        let me = Json::from_iter([
            ("id".to_owned(), text(address.id.as_str())),
            ("type".to_owned(), text(address.entity_type.as_str())),
        ]);
        let bindings = Bindings::new()
            .with("input", read(Some(&self.scope.input), given.input)?)
            .with("self", read(None, &me)?)
            .with("now", Value::Timestamp(given.now));
        Ok(match &self.scope.state {
            Some(ty) => bindings.with("state", read(Some(ty), given.state)?),
            None => bindings,
        })
    }

    fn required(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<(), Refused> {
        for (index, require) in self.require.iter().enumerate() {
            let place = || format!("require[{index}]");
            let that = require.that.holds(bindings, budget);
            if that.map_err(|error| at(&place(), error.reason(), error.located()))? {
                continue;
            }
            let message = match &require.message {
                Some(message) => evaluated(&place(), message.text(bindings, budget))?,
                None => format!("{} does not hold", require.that.source()),
            };
            return Err(Refused::new(require.reason.clone(), message));
        }
        Ok(())
    }

    fn next_state(
        &self,
        given: Given<'_>,
        bindings: &Bindings<'_>,
        budget: &mut Budget,
    ) -> Result<Option<Json>, Refused> {
        if !self.changes() {
            return Ok(None);
        }
        let mut changes = Changes::new();
        for (path, value) in &self.set {
            let place = || format!("set {}", path.source());
            let resolved = path.resolve(bindings, budget);
            let resolved = resolved.map_err(|error| at(&place(), error.reason(), error.located()))?;
            let value = evaluated(&place(), value.evaluate(bindings, budget))?;
            changes.set(resolved, value).map_err(|error| at(&place(), error.reason(), error.to_string()))?;
        }
        for path in &self.unset {
            let place = || format!("unset {}", path.source());
            let resolved = path.resolve(bindings, budget);
            let resolved = resolved.map_err(|error| at(&place(), error.reason(), error.located()))?;
            changes.unset(resolved).map_err(|error| at(&place(), error.reason(), error.to_string()))?;
        }
        // A state that nobody has given a shape yet becomes an object when something is put into it.
        let old = if given.state.is_null() { Json::Object(Default::default()) } else { given.state.clone() };
        let state = changes.apply(old).map_err(|error| Refused::new(error.reason(), error.to_string()))?;
        if let Some(schema) = given.schema {
            schema.check("state", &state).map_err(|wrong| Refused::new("InvalidState", wrong))?;
        }
        Ok(Some(state))
    }

    fn output(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<Json, Refused> {
        match &self.output {
            Some(output) => evaluated("output", output.evaluate(bindings, budget)),
            None => Ok(Json::Null),
        }
    }
}

impl Send {
    fn sending(
        &self,
        index: usize,
        bindings: &Bindings<'_>,
        budget: &mut Budget,
    ) -> Result<Option<Sending>, Refused> {
        let place = format!("send[{index}]");
        if let Some(when) = &self.when
            && !when.holds(bindings, budget).map_err(|error| at(&place, error.reason(), error.located()))?
        {
            return Ok(None);
        }
        let mut text = |template: &Template| evaluated(&place, template.text(bindings, budget));
        let (entity, id, method) = (text(&self.entity)?, text(&self.id)?, text(&self.method)?);
        let after = self.after.as_ref().map(&mut text).transpose()?;
        let after = match after {
            Some(after) => {
                let wrong =
                    || at(&place, "InvalidArgument", format!("after is {after:?}, which is no duration"));
                Some(span(&after).ok_or_else(wrong)?)
            }
            None => None,
        };
        let input = match &self.input {
            Some(input) => evaluated(&place, input.evaluate(bindings, budget))?,
            None => Json::Null,
        };
        let sending = Sending::new(&entity, &id, method, input, after);
        sending.map(Some).map_err(|error| at(&place, "InvalidAddress", error.to_string()))
    }
}

fn at(place: &str, reason: &str, message: String) -> Refused {
    Refused::new(reason, format!("{place}: {message}"))
}

fn evaluated<T>(place: &str, result: Result<T, cleat_cel::template::Error>) -> Result<T, Refused> {
    result.map_err(|error| at(place, error.error.reason(), error.to_string()))
}

fn read(ty: Option<&Type>, json: &Json) -> Result<Value, Refused> {
    let value = ty.map_or_else(|| Value::from_json(json), |ty| ty.value(json));
    value.map_err(|fault: Fault| Refused::new(fault.reason(), fault.to_string()))
}
