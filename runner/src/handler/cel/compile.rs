//! Compiling the expressions of a method.

use cleat_cel::{Env, Path, Program, Template, Type};
use cleat_crds::entity_type::{Cel, Requirement as Require, Send as Message};
use serde_json::Value as Json;

use super::{Method, Requirement, Send, fits};
use crate::definitions::{Faults, field};
use crate::handler::sending::span;

/// What the expressions of a method may refer to, as far as schemas tell.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The state; none if the type has none.
    pub state: Option<Type>,
    /// The input.
    pub input: Type,
    /// The output.
    pub output: Type,
}

impl Scope {
    fn env(&self) -> Env {
        let me = Type::object([("id", Type::String), ("type", Type::String)]);
        let env = Env::new().with("input", self.input.clone()).with("self", me).with("now", Type::Timestamp);
        match &self.state {
            Some(state) => env.with("state", state.clone()),
            None => env,
        }
    }
}

/// Compiles a method. What is wrong is added to the faults, under the path of its `cel`; then there is no method.
pub fn compile(name: &str, cel: &Cel, scope: Scope, path: &str, faults: &mut Faults) -> Option<Method> {
    let about = format!("method {name}");
    let before = std::mem::take(faults);
    let mut compiler = Compiler { env: scope.env(), about: &about, path, faults };
    let when = compiler.condition("when", cel.when.as_deref());
    let require = compiler.requirements(cel.require.as_deref().unwrap_or_default());
    let set = compiler.sets(cel, scope.state.as_ref());
    let unset = compiler.unsets(cel, scope.state.as_ref());
    compiler.overlaps(&set, &unset);
    let output = cel.output.as_ref().and_then(|output| compiler.output(&output.0, &scope.output));
    let send = compiler.sends(cel.send.as_deref().unwrap_or_default());
    let found = std::mem::replace(faults, before);
    let good = found.is_empty();
    faults.extend(found);
    good.then_some(Method { scope, when, require, set, unset, output, send })
}

struct Compiler<'a> {
    env: Env,
    about: &'a str,
    path: &'a str,
    faults: &'a mut Faults,
}

impl Compiler<'_> {
    fn fault(&mut self, at: &str, reason: &'static str, message: &str) {
        self.faults.add(format!("{}.{at}", self.path), reason, format!("{}: {message}", self.about));
    }

    fn condition(&mut self, at: &str, source: Option<&str>) -> Option<Program> {
        let source = source?;
        Program::condition(source, &self.env)
            .map_err(|found| {
                let path = format!("{}.{at}", self.path);
                self.faults.expression(&path, self.about, source, found.list());
            })
            .ok()
    }

    fn template(&mut self, at: &str, json: &Json) -> Option<Template> {
        Template::compile(json, &self.env)
            .map_err(|found| self.faults.template(&format!("{}.{at}", self.path), self.about, json, &found))
            .ok()
    }

    fn text(&mut self, at: &str, text: &str) -> Option<Template> {
        self.template(at, &Json::from(text))
    }

    fn place(&mut self, at: &str, source: &str, state: Option<&Type>) -> Option<Path> {
        let Some(state) = state else {
            self.fault(at, "UnknownField", "there is no state to change: declare spec.state");
            return None;
        };
        Path::compile(source, state, &self.env)
            .map_err(|found| {
                let path = format!("{}.{at}", self.path);
                self.faults.expression(&path, self.about, source, found.list());
            })
            .ok()
    }

    fn requirements(&mut self, requirements: &[Require]) -> Vec<Requirement> {
        let mut compiled = Vec::with_capacity(requirements.len());
        for (index, require) in requirements.iter().enumerate() {
            let that = self.condition(&format!("require[{index}].that"), Some(&require.that));
            let message = require
                .message
                .as_ref()
                .and_then(|message| self.text(&format!("require[{index}].message"), message));
            if let Some(that) = that {
                compiled.push(Requirement { that, reason: require.reason.clone(), message });
            }
        }
        compiled
    }

    fn sets(&mut self, cel: &Cel, state: Option<&Type>) -> Vec<(Path, Template)> {
        let mut compiled = Vec::new();
        for (source, value) in cel.set.iter().flatten() {
            let at = format!("set{}", field(source));
            let place = self.place(&at, source, state);
            let value = self.template(&at, &value.0);
            let (Some(place), Some(value)) = (place, value) else { continue };
            if !fits(place.target(), &value.output()) {
                let (is, gives) = (place.target(), value.output());
                self.fault(&at, "InvalidExpression", &format!("{source} is {is}, and this gives {gives}"));
            }
            compiled.push((place, value));
        }
        compiled
    }

    fn unsets(&mut self, cel: &Cel, state: Option<&Type>) -> Vec<Path> {
        let sources = cel.unset.iter().flatten().enumerate();
        sources.filter_map(|(index, source)| self.place(&format!("unset[{index}]"), source, state)).collect()
    }

    /// Two changes of one place have no order, so there is none.
    fn overlaps(&mut self, set: &[(Path, Template)], unset: &[Path]) {
        let places: Vec<(&Path, String)> = set
            .iter()
            .map(|(path, _)| (path, format!("set{}", field(path.source()))))
            .chain(unset.iter().enumerate().map(|(index, path)| (path, format!("unset[{index}]"))))
            .collect();
        for (index, (later, at)) in places.iter().enumerate() {
            let earlier = places.iter().take(index).find(|(earlier, _)| earlier.overlaps(later));
            if let Some((earlier, _)) = earlier {
                let message =
                    format!("{} and {} overlap: change each place once", earlier.source(), later.source());
                self.fault(at, "OverlappingSet", &message);
            }
        }
    }

    fn output(&mut self, json: &Json, expected: &Type) -> Option<Template> {
        let output = self.template("output", json)?;
        if !fits(expected, &output.output()) {
            let gives = output.output();
            let message = format!("the output's schema says {expected}, and this gives {gives}");
            self.fault("output", "InvalidExpression", &message);
        }
        Some(output)
    }

    fn sends(&mut self, messages: &[Message]) -> Vec<Send> {
        let mut compiled = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let at = |name: &str| format!("send[{index}].{name}");
            let when = self.condition(&at("when"), message.when.as_deref());
            let entity = self.text(&at("entity"), &message.entity);
            let id = self.text(&at("id"), &message.id);
            let method = self.text(&at("method"), &message.method);
            let input = message.input.as_ref().and_then(|input| self.template(&at("input"), &input.0));
            let after = message.after.as_ref().and_then(|after| self.after(&at("after"), after));
            if let (Some(entity), Some(id), Some(method)) = (entity, id, method) {
                compiled.push(Send { when, entity, id, method, input, after });
            }
        }
        compiled
    }

    fn after(&mut self, at: &str, text: &str) -> Option<Template> {
        let after = self.text(at, text)?;
        if after.is_constant() && span(text).is_none() {
            self.fault(
                at,
                "InvalidExpression",
                &format!("{text:?} is not a duration: write 500ms, 5s, 2m or 24h"),
            );
        } else if !fits(&Type::String, &after.output()) {
            let gives = after.output();
            self.fault(at, "InvalidExpression", &format!("this gives {gives}, and a duration is needed"));
        }
        Some(after)
    }
}
