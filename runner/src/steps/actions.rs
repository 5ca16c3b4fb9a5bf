//! Checking what a step does, kind by kind.

use std::sync::Arc;
use std::time::Duration;

use cleat_cel::Type;
use cleat_crds::http::Value as HeaderValue;
use cleat_crds::step::{Branch, Call, Case, Child, Compensation, ForEach, Request as Http};
use cleat_crds::{Retry as Tries, Step as Written};
use serde_json::Value;

use super::compile::Compiler;
use super::expression::below;
use super::fault::{
    DUPLICATE_STEP, INVALID_EXPRESSION, INVALID_STEP, UNKNOWN_ENTITY, UNKNOWN_METHOD, UNKNOWN_WORKFLOW,
};
use super::names::{Names, TAKEN};
use super::program::{Act, Action, Header, Request, Retry};

/// The pause after the first failure, if nothing is said.
const BACKOFF: Duration = Duration::from_secs(1);
/// The longest pause, if nothing is said.
const LONGEST: Duration = Duration::from_secs(60);
/// How often a service is asked and a block is taken, if nothing is said.
const ATTEMPTS: u32 = 10;

type Compiled = Option<(Action, Type)>;

impl Compiler<'_> {
    /// The one thing that a step does, and the type of what it gives.
    pub(super) fn action(&mut self, step: &Written, path: &str, names: &mut Names, depth: usize) -> Compiled {
        let said = [
            ("call", step.call.is_some()),
            ("http", step.http.is_some()),
            ("sleep", step.sleep.is_some()),
            ("until", step.until.is_some()),
            ("signal", step.signal.is_some()),
            ("parallel", step.parallel.is_some()),
            ("forEach", step.for_each.is_some()),
            ("switch", step.switch.is_some()),
            ("set", step.set.is_some()),
            ("workflow", step.workflow.is_some()),
            ("fail", step.fail.is_some()),
        ];
        let said: Vec<_> = said.into_iter().filter(|(_, said)| *said).map(|(name, _)| name).collect();
        match said[..] {
            [_] => {}
            [] if !step.unknown.is_empty() => return None,
            [] => {
                let message =
                    format!("the step does nothing: say one of {}", cleat_crds::step::ACTIONS.join(", "));
                self.fault(path, INVALID_STEP, message);
                return None;
            }
            _ => {
                let message = format!("a step does one thing, and this one says {}", said.join(" and "));
                self.fault(path, INVALID_STEP, message);
            }
        }
        if step.steps.is_some() && step.for_each.is_none() {
            self.fault(&format!("{path}.steps"), INVALID_STEP, "steps go with forEach, and there is none");
        }
        let at = |part: &str| format!("{path}.{part}");
        if let Some(call) = &step.call {
            let (act, output) = self.call(call, &at("call"), names)?;
            return Some((
                Action::Act { act: Arc::new(act), retry: tries(step.retry.as_ref(), None) },
                output,
            ));
        }
        if let Some(http) = &step.http {
            let act = Arc::new(self.http(http, &at("http"), names)?);
            let retry = tries(step.retry.as_ref(), Some(ATTEMPTS));
            return Some((Action::Act { act, retry }, answer()));
        }
        if let Some(sleep) = &step.sleep {
            return self.sleep(sleep, &at("sleep"), names);
        }
        if let Some(until) = &step.until {
            return self.until(until, &at("until"), names);
        }
        if let Some(signal) = &step.signal {
            let timeout = signal.timeout.map(cleat_crds::Duration::get);
            return Some((Action::Signal { name: signal.name.clone(), timeout }, Type::Dyn));
        }
        if let Some(branches) = &step.parallel {
            let mut around = names.clone();
            around.certain &= step.when.is_none();
            let compiled = self.parallel(branches, &at("parallel"), &mut around, depth);
            names.take_vars(around);
            return compiled;
        }
        if let Some(each) = &step.for_each {
            return self.for_each(each, step, path, names, depth);
        }
        if let Some(cases) = &step.switch {
            return self.switch(cases, &at("switch"), names, depth);
        }
        if let Some(set) = &step.set {
            let mut values = Vec::new();
            let mut types = Vec::new();
            for (name, value) in set {
                let path = below(&at("set"), name);
                self.name(name, &path);
                let template = self.template(&value.0, &path, names);
                types.push((name.as_str(), template.as_ref().map_or(Type::Dyn, cleat_cel::Template::output)));
                values.extend(template.map(|template| (Arc::from(name.as_str()), template)));
            }
            types.iter().for_each(|(name, ty)| names.add_var(name, ty.clone()));
            return Some((Action::Set(values), Type::object(types)));
        }
        if let Some(child) = &step.workflow {
            if names.certain && step.when.is_none() {
                self.acyclic(&child.type_, &at("workflow.type"));
            }
            return self.child(child, step.retry.as_ref(), &at("workflow"), names);
        }
        let fail = step.fail.as_ref()?;
        let message = fail.message.as_ref();
        let message = message.and_then(|message| self.text(message, &at("fail.message"), names));
        Some((Action::Fail { reason: fail.reason.clone(), message }, Type::Null))
    }

    pub(super) fn compensation(&mut self, undo: &Compensation, path: &str, names: &Names) -> Option<Act> {
        match undo {
            Compensation::Call(call) => Some(self.call(call, &format!("{path}.call"), names)?.0),
            Compensation::Http(http) => self.http(http, &format!("{path}.http"), names),
        }
    }

    fn call(&mut self, call: &Call, path: &str, names: &Names) -> Option<(Act, Type)> {
        let Call { entity, id, method, input } = call;
        let (mut taken, mut output) = (None, Type::Dyn);
        if let Some(world) = self.world {
            match world.entity(entity) {
                None => {
                    let message =
                        format!("there is no entity type {entity}: declare it, or correct the name");
                    self.fault(&format!("{path}.entity"), UNKNOWN_ENTITY, message);
                }
                Some(known) => match known.methods.get(method) {
                    Some(found) => {
                        if let Some(why) = found.closed {
                            let message = format!("a workflow cannot call {method} of {entity}: {why}");
                            self.fault(&format!("{path}.method"), UNKNOWN_METHOD, message);
                        }
                        taken.clone_from(&found.input);
                        output = found.output();
                    }
                    None if known.open => {}
                    None => {
                        let known: Vec<_> = known.methods.keys().map(String::as_str).collect();
                        let message = format!("{entity} has no method {method}: it has {}", known.join(", "));
                        self.fault(&format!("{path}.method"), UNKNOWN_METHOD, message);
                    }
                },
            }
        }
        let id = self.text(id, &format!("{path}.id"), names);
        let input = input.as_ref().map(|input| &input.0);
        let wanted = input.is_some();
        let input = self.given(input, taken.as_ref(), &format!("{path}.input"), names);
        if wanted && input.is_none() {
            return None;
        }
        Some((Act::Call { entity: entity.clone(), id: id?, method: method.clone(), input }, output))
    }

    fn http(&mut self, http: &Http, path: &str, names: &Names) -> Option<Act> {
        let url = self.text(&http.url, &format!("{path}.url"), names);
        let well_known = http.url.starts_with("http://") || http.url.starts_with("https://");
        if !well_known && !http.url.starts_with("${") {
            let message = "a URL begins with http:// or https://";
            self.fault(&format!("{path}.url"), INVALID_STEP, message);
        }
        let mut headers = Vec::new();
        for (name, value) in http.headers.iter().flatten() {
            let path = below(&format!("{path}.headers"), name);
            if http::HeaderName::try_from(name.as_str()).is_err() {
                self.fault(&path, INVALID_STEP, format!("{name:?} cannot be the name of a header"));
            }
            headers.extend(match value {
                HeaderValue::Value(text) => {
                    let text = self.text(text, &format!("{path}.value"), names);
                    text.map(|text| (name.to_ascii_lowercase(), Header::Text(text)))
                }
                HeaderValue::SecretRef(key) => Some((name.to_ascii_lowercase(), Header::Secret(key.clone()))),
            });
        }
        let body = http.body.as_ref();
        let body = body.and_then(|body| self.template(&body.0, &format!("{path}.body"), names));
        let method = http.method.clone();
        let method = method.unwrap_or_else(|| if http.body.is_some() { "POST" } else { "GET" }.to_owned());
        let (auth, tls) = (http.auth.clone(), http.tls.clone());
        Some(Act::Http(Box::new(Request { method, url: url?, headers, body, auth, tls })))
    }

    fn sleep(&mut self, text: &str, path: &str, names: &Names) -> Compiled {
        let template = self.text(text, path, names)?;
        let known = template.is_constant().then(|| text.parse::<cleat_crds::Duration>());
        if let Some(Err(error)) = known {
            self.fault(path, INVALID_EXPRESSION, error.to_string());
        }
        self.gives(&template.output(), &[Type::Duration, Type::String], "a duration", path);
        Some((Action::Sleep(template), Type::Null))
    }

    fn until(&mut self, text: &str, path: &str, names: &Names) -> Compiled {
        let template = self.text(text, path, names)?;
        if template.is_constant() && chrono::DateTime::parse_from_rfc3339(text).is_err() {
            let message = format!("{text:?} is not a time: write one such as 2030-01-31T08:00:00Z");
            self.fault(path, INVALID_EXPRESSION, message);
        }
        self.gives(&template.output(), &[Type::Timestamp, Type::String], "a time", path);
        Some((Action::Until(template), Type::Null))
    }

    fn gives(&mut self, given: &Type, wanted: &[Type], what: &str, path: &str) {
        if !wanted.iter().any(|wanted| wanted.accepts(given)) {
            self.fault(path, INVALID_EXPRESSION, format!("this gives {given}, and {what} is wanted"));
        }
    }

    fn parallel(&mut self, branches: &[Branch], path: &str, names: &mut Names, depth: usize) -> Compiled {
        branches.iter().for_each(|branch| names.add_vars_of(&branch.steps.0));
        let (mut compiled, mut types): (Vec<(Arc<str>, _)>, Vec<_>) = Default::default();
        for (number, branch) in branches.iter().enumerate() {
            let path = format!("{path}[{number}]");
            self.name(&branch.name, &format!("{path}.name"));
            if compiled.iter().any(|(known, _)| **known == *branch.name) {
                let message = format!("there is another branch {} before this one", branch.name);
                self.fault(&format!("{path}.name"), DUPLICATE_STEP, message);
            }
            let (block, output) =
                self.block(&branch.steps.0, &format!("{path}.steps"), &mut names.clone(), depth + 1);
            compiled.push((branch.name.as_str().into(), block));
            types.push((branch.name.as_str(), output));
        }
        Some((Action::Parallel(compiled), Type::object(types)))
    }

    fn for_each(
        &mut self,
        each: &ForEach,
        step: &Written,
        path: &str,
        names: &mut Names,
        depth: usize,
    ) -> Compiled {
        let at = format!("{path}.forEach");
        let items = self.template(&each.in_.0, &format!("{at}.in"), names);
        let given = items.as_ref().map_or(Type::Dyn, cleat_cel::Template::output);
        self.gives(&given, &[Type::list(Type::Dyn)], "a list", &format!("{at}.in"));
        let item = match &given {
            Type::List(list) => list.item.clone(),
            _ => Type::Dyn,
        };
        let name = each.as_.as_deref().unwrap_or("item");
        self.name(name, &format!("{at}.as"));
        if TAKEN.contains(&name) || names.has_item(name) {
            let message = format!("{name} means something else here already: call the items otherwise");
            self.fault(&format!("{at}.as"), DUPLICATE_STEP, message);
        }
        let Some(steps) = step.steps.as_ref().filter(|steps| !steps.0.is_empty()) else {
            self.fault(path, INVALID_STEP, "forEach needs steps, which say what is done for each item");
            return None;
        };
        names.add_vars_of(&steps.0);
        let mut inside = names.clone();
        inside.add_item(name, item);
        inside.certain = false;
        let (block, output) = self.block(&steps.0, &format!("{path}.steps"), &mut inside, depth + 1);
        let concurrency = each.concurrency.and_then(|most| usize::try_from(most).ok()).unwrap_or(1).max(1);
        let action = Action::ForEach { items: items?, name: name.into(), concurrency, block };
        Some((action, Type::list(output)))
    }

    fn switch(&mut self, cases: &[Case], path: &str, names: &mut Names, depth: usize) -> Compiled {
        let mut compiled = Vec::new();
        let before = names.clone();
        for (number, case) in cases.iter().enumerate() {
            let path = format!("{path}[{number}]");
            if case.when.is_none() && number + 1 < cases.len() {
                let message = "only the last case may have no condition: those after it would never be taken";
                self.fault(&path, INVALID_STEP, message);
            }
            let when = case.when.as_ref();
            let when = when.map(|when| self.condition(when, &format!("{path}.when"), &before));
            let mut inside = before.clone();
            inside.certain = false;
            let (block, _) = self.block(&case.steps.0, &format!("{path}.steps"), &mut inside, depth + 1);
            names.add_vars_of(&case.steps.0);
            match when {
                Some(None) => {}
                Some(condition) => compiled.push((condition, block)),
                None => compiled.push((None, block)),
            }
        }
        Some((Action::Switch(compiled), Type::Dyn))
    }

    fn child(&mut self, child: &Child, retry: Option<&Tries>, path: &str, names: &Names) -> Compiled {
        let Child { type_: workflow, key, input } = child;
        let mut taken = None;
        if let Some(world) = self.world {
            match world.workflow(workflow) {
                Some(known) => taken.clone_from(&known.input),
                None if workflow == self.name => {}
                None => {
                    let message = format!("there is no workflow {workflow}: declare it, or correct the name");
                    self.fault(&format!("{path}.type"), UNKNOWN_WORKFLOW, message);
                }
            }
        }
        let key = key.as_ref().map(|key| self.text(key, &format!("{path}.key"), names));
        let input: Option<&Value> = input.as_ref().map(|input| &input.0);
        let input = self.given(input, taken.as_ref(), &format!("{path}.input"), names);
        let retry = retry.map(|retry| tries(Some(retry), None));
        let action = Action::Workflow { workflow: workflow.clone(), key: key.flatten(), input, retry };
        Some((action, Type::Dyn))
    }
}

/// How a step is taken again as a whole, if it is one that is.
pub(super) fn again(step: &Written) -> Option<Retry> {
    let whole =
        step.signal.is_some() || step.parallel.is_some() || step.for_each.is_some() || step.switch.is_some();
    step.retry.as_ref().filter(|_| whole).map(|retry| tries(Some(retry), Some(ATTEMPTS)))
}

fn tries(retry: Option<&Tries>, attempts: Option<u32>) -> Retry {
    let given = retry.and_then(|retry| retry.attempts).and_then(|attempts| u32::try_from(attempts).ok());
    Retry {
        attempts: given.or(attempts),
        backoff: retry.and_then(|retry| retry.backoff).map_or(BACKOFF, cleat_crds::Duration::get),
        max: retry.and_then(|retry| retry.max).map_or(LONGEST, cleat_crds::Duration::get),
    }
}

/// What a service answers.
fn answer() -> Type {
    let headers = Type::map(Type::String, Type::String);
    Type::object([("status", Type::Int), ("headers", headers), ("body", Type::Dyn)])
}
