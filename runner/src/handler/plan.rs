//! What an EntityType says, checked and compiled.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use cleat_cel::Type;
use cleat_crds::entity_type::{self as spec, EntityTypeSpec};
use serde_json::Value as Json;

use super::stored::Stored;
use super::{Schema, cel, http};
use crate::definitions::{Fault, Faults};
use crate::entity::{
    Access, Concurrency, Definition, Delivery, Effects, Method, Retry, StateType, Visibility,
};
use crate::message::EntityType;
use crate::shard::GroupName;

/// An EntityType that can be served, as far as its spec alone tells.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What can be asked, without the methods of a native type.
    pub(super) definition: Definition,
    /// The state before anything was stored.
    pub(super) initial: Json,
    pub(super) schema: Option<Schema>,
    pub(super) methods: BTreeMap<String, Planned>,
    /// The type that answers what nobody else does.
    pub(super) native: Option<String>,
    /// Whether the spec says so, or the native type does.
    pub(super) group: Option<GroupName>,
}

/// One method.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) input: Option<Schema>,
    pub(super) output: Option<Schema>,
    pub(super) by: By,
    pub(super) index: usize,
    pub(super) visibility: Visibility,
    pub(super) retry: Option<Retry>,
    pub(super) timeout: Option<Duration>,
}

/// Who answers.
#[derive(Debug, Clone)]
pub(super) enum By {
    Cel(Box<cel::Method>),
    Http(Box<http::Service>),
    Native,
}

/// Who answers a type's methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Expressions.
    Cel,
    /// Services.
    Http,
    /// A compiled type.
    Native,
    /// Several of these.
    Mixed,
}

impl Kind {
    /// Who answers the methods of a spec; none if it has no methods.
    pub fn of(spec: &EntityTypeSpec) -> Option<Self> {
        let fallback = spec.handler.as_ref().map(|handler| match handler {
            spec::Handler::Native(_) => Self::Native,
            spec::Handler::Http(_) => Self::Http,
        });
        let by = |method: &spec::Method| match method {
            spec::Method { cel: Some(_), .. } => Some(Self::Cel),
            spec::Method { http: Some(_), .. } => Some(Self::Http),
            _ => fallback,
        };
        let native = fallback.filter(|kind| *kind == Self::Native);
        let mut kinds = spec.methods.iter().filter_map(by).chain(native);
        let first = kinds.next()?;
        Some(if kinds.all(|kind| kind == first) { first } else { Self::Mixed })
    }

    /// As the status says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cel => "cel",
            Self::Http => "http",
            Self::Native => "native",
            Self::Mixed => "mixed",
        }
    }
}

impl Plan {
    /// Checks and compiles a spec.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn of(name: &str, spec: &EntityTypeSpec) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let entity_type = EntityType::new(name).map_err(|error| {
            vec![Fault {
                path: "metadata.name".to_owned(),
                reason: "InvalidName",
                message: error.to_string(),
            }]
        })?;
        let native = match &spec.handler {
            Some(spec::Handler::Native(native)) => Some(native.type_.clone()),
            _ => None,
        };
        if native.is_some() && spec.state.is_some() {
            let message = "a native type has its own state: leave out state, or the handler";
            faults.add("spec.state", "StateNotAllowed", message);
        }
        if spec.methods.is_empty() && native.is_none() {
            faults.add("spec.methods", "NoHandler", "there is nothing that could be asked: add a method");
        }
        let state = spec.state.as_ref();
        let schema = state.and_then(|state| schema("spec.state.schema", state.schema.as_ref(), &mut faults));
        let initial = state.and_then(|state| state.initial.clone()).unwrap_or_default().0;
        if let (Some(schema), Some(_)) = (&schema, state.and_then(|state| state.initial.as_ref()))
            && let Err(wrong) = schema.check("initial", &initial)
        {
            faults.add("spec.state.initial", "InvalidState", wrong);
        }
        let (definition, group) = kept(entity_type, spec, &mut faults);
        let mut plan = Self { definition, initial, schema, methods: BTreeMap::new(), native, group };
        let mut names = HashSet::new();
        for (index, method) in spec.methods.iter().enumerate() {
            if !names.insert(&method.name) {
                let message = format!("there are two methods {}: rename one of them", method.name);
                faults.add(format!("spec.methods[{index}].name"), "DuplicateMethod", message);
                continue;
            }
            plan.method(index, method, spec, &mut faults);
        }
        if faults.is_empty()
            && let Err(error) = plan.definition.check()
        {
            faults.add("spec.methods", "InvalidMethod", error.to_string());
        }
        if faults.is_empty() { Ok(plan) } else { Err(faults.into_list()) }
    }

    fn method(&mut self, index: usize, method: &spec::Method, spec: &EntityTypeSpec, faults: &mut Faults) {
        let path = format!("spec.methods[{index}]");
        let shape = |what: &str, shape: &Option<spec::Shape>, faults: &mut Faults| {
            let given = shape.as_ref().and_then(|shape| shape.schema.as_ref());
            let schema = schema(&format!("{path}.{what}.schema"), given, faults);
            let ty = given.map_or(Type::Dyn, |given| Type::from_schema(&Json::Object(given.0.clone())));
            (schema, ty)
        };
        let (input, input_type) = shape("input", &method.input, faults);
        let (output, output_type) = shape("output", &method.output, faults);
        let scope = cel::Scope { state: self.state_type(spec), input: input_type, output: output_type };
        let Some(by) = self.answering(method, scope, spec, &path, faults) else { return };
        if method.stream && !matches!(by, By::Native) {
            let message = format!("method {}: only native handlers give streams", method.name);
            faults.add(format!("{path}.stream"), "NotStreaming", message);
        }
        let delivery = match method.delivery {
            spec::Delivery::Volatile => Delivery::Volatile,
            spec::Delivery::Persisted => Delivery::Persisted,
        };
        let planned = Planned {
            input,
            output,
            by,
            index,
            visibility: match method.visibility {
                spec::Visibility::Public => Visibility::Public,
                spec::Visibility::Protected => Visibility::Protected,
                spec::Visibility::Private => Visibility::Private,
            },
            retry: method.retry.as_ref().map(retry),
            timeout: method.timeout.map(cleat_crds::Duration::get),
        };
        if let Some(defined) = self.defined(&planned, delivery, method, &path, faults) {
            self.definition.methods.insert(method.name.clone(), defined);
        }
        self.methods.insert(method.name.clone(), planned);
    }

    /// The type of the state that the methods declared here see. That of a native type is its own affair.
    fn state_type(&self, spec: &EntityTypeSpec) -> Option<Type> {
        let state = spec.state.as_ref().filter(|_| self.native.is_none())?;
        let schema = state.schema.as_ref();
        Some(schema.map_or(Type::Dyn, |schema| Type::from_schema(&Json::Object(schema.0.clone()))))
    }

    fn answering(
        &self,
        method: &spec::Method,
        scope: cel::Scope,
        spec: &EntityTypeSpec,
        path: &str,
        faults: &mut Faults,
    ) -> Option<By> {
        let name = &method.name;
        if method.cel.is_some() && method.http.is_some() {
            faults.add(path, "NoHandler", format!("method {name} has both cel and http: choose one"));
            return None;
        }
        if let Some(cel) = &method.cel {
            let method = cel::compile(name, cel, scope, &format!("{path}.cel"), faults)?;
            return Some(By::Cel(Box::new(method)));
        }
        if let Some(http) = &method.http {
            return http::Service::new(http, &format!("{path}.http"), faults)
                .map(|it| By::Http(Box::new(it)));
        }
        match &spec.handler {
            Some(spec::Handler::Native(_)) => Some(By::Native),
            Some(spec::Handler::Http(http)) => {
                http::Service::new(http, "spec.handler.http", faults).map(|it| By::Http(Box::new(it)))
            }
            None => {
                let message =
                    format!("nobody answers method {name}: give it cel or http, or the spec a handler");
                faults.add(path, "NoHandler", message);
                None
            }
        }
    }

    /// How the runtime sees a method that is declared here; native ones are theirs.
    fn defined(
        &self,
        planned: &Planned,
        delivery: Delivery,
        method: &spec::Method,
        path: &str,
        faults: &mut Faults,
    ) -> Option<Method> {
        let stateful = self.definition.state.is_some();
        let (access, effects) = match &planned.by {
            By::Native => return None,
            By::Cel(cel) => {
                if delivery == Delivery::Volatile && (cel.changes() || cel.sends()) {
                    let what = if cel.changes() { "changes the state" } else { "sends messages" };
                    let message = format!("method {} {what} and is volatile: make it persisted", method.name);
                    faults.add(format!("{path}.delivery"), "VolatileWrite", message);
                }
                let access = match (cel.changes(), cel.looks()) {
                    (true, _) => Access::Write,
                    (false, true) => Access::Read,
                    (false, false) => Access::None,
                };
                (access, Effects::Inside)
            }
            By::Http(_) => {
                let access = match delivery {
                    _ if !stateful => Access::None,
                    Delivery::Persisted => Access::Write,
                    Delivery::Volatile => Access::Read,
                };
                (access, Effects::Outside)
            }
        };
        let base = Method { delivery, ..Method::volatile() }.with_state(access).with_effects(effects);
        Some(planned.configure(base))
    }
}

impl Planned {
    /// A method with what the spec says about it.
    pub(super) fn configure(&self, method: Method) -> Method {
        Method {
            visibility: self.visibility,
            retry: self.retry.or(method.retry),
            timeout: self.timeout.or(method.timeout),
            ..method
        }
    }
}

/// How instances are kept.
fn kept(
    entity_type: EntityType,
    spec: &EntityTypeSpec,
    faults: &mut Faults,
) -> (Definition, Option<GroupName>) {
    let mut definition = Definition::new(entity_type);
    let group = spec.shard_group.as_deref().and_then(|group| match GroupName::new(group) {
        Ok(group) => Some(group),
        Err(error) => {
            faults.add("spec.shardGroup", "InvalidName", error.to_string());
            None
        }
    });
    let number = |number: Option<i32>| number.and_then(|number| usize::try_from(number).ok());
    definition.group = group.clone().unwrap_or_default();
    definition.idle = spec.idle_timeout.map(cleat_crds::Duration::get);
    definition.mailbox = number(spec.mailbox).and_then(NonZeroUsize::new);
    definition.concurrency = number(spec.concurrency)
        .map(|most| NonZeroUsize::new(most).map_or(Concurrency::Unbounded, Concurrency::Limited));
    definition.state = spec.state.as_ref().map(|_| StateType::of::<Stored>());
    (definition, group)
}

fn schema(path: &str, schema: Option<&cleat_crds::Object>, faults: &mut Faults) -> Option<Schema> {
    Schema::compile(schema?).map_err(|wrong| faults.add(path, "InvalidSchema", wrong)).ok()
}

fn retry(retry: &cleat_crds::Retry) -> Retry {
    let usual = Retry::default();
    let attempts = retry.attempts.and_then(|attempts| usize::try_from(attempts).ok());
    Retry {
        attempts: attempts.and_then(NonZeroUsize::new).unwrap_or(usual.attempts),
        backoff: retry.backoff.map_or(usual.backoff, cleat_crds::Duration::get),
        max: retry.max.map_or(usual.max, cleat_crds::Duration::get),
        ..usual
    }
}
