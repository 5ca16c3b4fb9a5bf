//! A declared type as an entity.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chrono::Utc;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value as Json;

use super::plan::{By, Plan, Planned};
use super::stored::Stored;
use super::{cel, http};
use crate::definitions::{Fault, Faults};
use crate::egress::Egress;
use crate::entity::native::unknown_method;
use crate::entity::{Access, Call, Definition, Entity, Handler, HandlerError, Resources};
use crate::message::{EntityAddress, codec};

/// The types that are compiled into this runner, by name.
pub type Natives = BTreeMap<String, Arc<dyn Entity>>;

/// A declared type.
struct Declared {
    definition: Definition,
    plan: Arc<Plan>,
    native: Option<Arc<dyn Entity>>,
    egress: Egress,
}

impl Plan {
    /// The entity that is planned.
    ///
    /// # Errors
    /// The native type, or a method of it, is not compiled into this runner.
    pub fn entity(self, natives: &Natives, egress: &Egress) -> Result<Arc<dyn Entity>, Vec<Fault>> {
        let native = match &self.native {
            Some(name) => {
                let native = natives.get(name).filter(|native| is_users(native));
                Some(native.cloned().ok_or_else(|| vec![unknown(name, natives)])?)
            }
            None => None,
        };
        let definition = match &native {
            Some(native) => self.configured(native.definition())?,
            None => self.definition.clone(),
        };
        Ok(Arc::new(Declared { definition, plan: Arc::new(self), native, egress: egress.clone() }))
    }

    /// The definition of a native type with what the spec says about it.
    fn configured(&self, native: &Definition) -> Result<Definition, Vec<Fault>> {
        let declared = &self.definition;
        let mut faults = Faults::default();
        let mut methods = native.methods.clone();
        methods.extend(declared.methods.clone());
        for (name, planned) in self.methods.iter().filter(|(_, planned)| matches!(planned.by, By::Native)) {
            match methods.get_mut(name) {
                Some(method) => *method = planned.configure(method.clone()),
                None => {
                    let known = native.methods.keys().cloned().collect::<Vec<_>>().join(", ");
                    let message =
                        format!("the native type {} has no method {name}, but {known}", native.entity_type);
                    faults.add(format!("spec.methods[{}].name", planned.index), "UnknownMethod", message);
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults.into_list());
        }
        Ok(Definition {
            entity_type: declared.entity_type.clone(),
            group: self.group.clone().unwrap_or_else(|| native.group.clone()),
            methods,
            state: native.state,
            idle: declared.idle.or(native.idle),
            mailbox: declared.mailbox.or(native.mailbox),
            concurrency: declared.concurrency.or(native.concurrency),
        })
    }
}

/// Whether a type is one of those that users have written. Executions have a door of their own.
fn is_users(native: &Arc<dyn Entity>) -> bool {
    native.reserved().is_none()
}

fn unknown(name: &str, natives: &Natives) -> Fault {
    let known = natives.iter().filter(|(_, native)| is_users(native)).map(|(name, _)| name.clone());
    let known = known.collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none is".to_owned() } else { format!("there are {known}") };
    Fault {
        path: "spec.handler.native.type".to_owned(),
        reason: "UnknownNative",
        message: format!("the type {name} is not compiled into this image: {known}"),
    }
}

impl Entity for Declared {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn acquire<'a>(&'a self, address: &'a EntityAddress) -> BoxFuture<'a, Result<Resources, HandlerError>> {
        match &self.native {
            Some(native) => native.acquire(address),
            None => std::future::ready(Ok(Arc::new(()) as Resources)).boxed(),
        }
    }

    fn activate_with<'a>(
        &'a self,
        address: &'a EntityAddress,
        resources: Resources,
    ) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        async move {
            let native = match &self.native {
                Some(native) => Some(native.activate_with(address, resources).await?),
                None => None,
            };
            let (plan, egress) = (Arc::clone(&self.plan), self.egress.clone());
            Ok(Arc::new(Instance { plan, native, egress }) as Arc<dyn Handler>)
        }
        .boxed()
    }

    fn activate<'a>(
        &'a self,
        address: &'a EntityAddress,
    ) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        async move {
            let resources = self.acquire(address).await?;
            self.activate_with(address, resources).await
        }
        .boxed()
    }
}

/// What answers for one instance.
struct Instance {
    plan: Arc<Plan>,
    native: Option<Arc<dyn Handler>>,
    egress: Egress,
}

impl Handler for Instance {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move {
            let Some(planned) = self.plan.methods.get(call.method()) else {
                // Whatever a native type can, it may, declared or not.
                return match &self.native {
                    Some(native) => native.handle(call).await,
                    None => Err(unknown_method(call)),
                };
            };
            match (&planned.by, &self.native) {
                (By::Cel(cel), _) => self.evaluate(planned, cel, call),
                (By::Http(service), _) => self.ask(planned, service, call).await,
                (By::Native, Some(native)) => {
                    planned.check_input(call)?;
                    let reply = native.handle(call).await?;
                    if let Some(schema) = &planned.output {
                        let output = codec::to_json(&reply)?;
                        schema
                            .check("output", &output)
                            .map_err(|wrong| HandlerError::failed("InvalidOutput", wrong))?;
                    }
                    Ok(reply)
                }
                (By::Native, None) => Err(unknown_method(call)),
            }
        }
        .boxed()
    }
}

impl Instance {
    fn evaluate(&self, planned: &Planned, cel: &cel::Method, call: &mut Call) -> Result<Bytes, HandlerError> {
        let input = planned.check_input(call)?;
        let (address, now) = (call.address().clone(), Utc::now());
        let access = self.access(call);
        let done = {
            let state = match access {
                Access::None => &self.plan.initial,
                Access::Read | Access::Write => call.state::<Stored>()?.or(&self.plan.initial),
            };
            let schema = self.plan.schema.as_ref();
            cel.call(cel::Given { address: &address, input: &input, state, now, schema })
        };
        let done = done.map_err(|refused| HandlerError::failed(refused.reason, refused.message))?;
        if let Some(schema) = &planned.output {
            schema
                .check("output", &done.output)
                .map_err(|wrong| HandlerError::failed("InvalidOutput", wrong))?;
        }
        self.keep(call, access, done.state)?;
        for sending in done.sends {
            sending.with(call)?;
        }
        Ok(codec::encode(&done.output)?.into())
    }

    async fn ask(
        &self,
        planned: &Planned,
        service: &http::Service,
        call: &mut Call,
    ) -> Result<Bytes, HandlerError> {
        let input = planned.check_input(call)?;
        let access = self.access(call);
        let state = match access {
            Access::None => None,
            Access::Read | Access::Write => Some(call.state::<Stored>()?.or(&self.plan.initial).clone()),
        };
        let said = service.ask(&self.egress, call, &input, state.as_ref()).await?;
        // A service that says something wrong is broken, and may be mended: that is an attempt that failed.
        let broken = |wrong: String| HandlerError::Retry(format!("InvalidAnswer: {wrong}"));
        if let Some(schema) = &planned.output {
            schema.check("output", &said.output).map_err(broken)?;
        }
        if let (Some(schema), Some(state)) = (&self.plan.schema, &said.state) {
            schema.check("state", state).map_err(broken)?;
        }
        if said.state.is_some() && access != Access::Write {
            let why = "this method cannot change the state: it is volatile, or the type declares no state";
            return Err(broken(why.to_owned()));
        }
        let persisted = self.plan.definition.methods.get(call.method()).map(|method| method.delivery);
        if !said.sends.is_empty() && persisted != Some(crate::entity::Delivery::Persisted) {
            return Err(broken("a volatile method cannot send messages".to_owned()));
        }
        self.keep(call, access, said.state)?;
        for sending in said.sends {
            sending.with(call)?;
        }
        Ok(codec::encode(&said.output)?.into())
    }

    /// What this method does with the state.
    fn access(&self, call: &Call) -> Access {
        self.plan.definition.methods.get(call.method()).map_or(Access::None, |method| method.access)
    }

    /// Makes a new state the entity's. One that was never stored is from now on what it began as.
    fn keep(&self, call: &mut Call, access: Access, state: Option<Json>) -> Result<(), HandlerError> {
        if access == Access::Write {
            let stored = call.state_mut::<Stored>()?;
            let next = state.unwrap_or_else(|| stored.or(&self.plan.initial).clone());
            stored.set(next);
        }
        Ok(())
    }
}

impl Planned {
    /// The input, if it is what the schema says.
    fn check_input(&self, call: &Call) -> Result<Json, HandlerError> {
        let input = codec::to_json(call.payload())?;
        if let Some(schema) = &self.input {
            schema.check("input", &input).map_err(|wrong| HandlerError::failed("InvalidInput", wrong))?;
        }
        Ok(input)
    }
}
