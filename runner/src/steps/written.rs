//! A workflow that was written down, as the engine runs it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cleat_cel::Value;
use cleat_crds::workflow_type::WorkflowTypeSpec;
use futures::FutureExt;
use futures::future::BoxFuture;
use jsonschema::Validator;

use super::definition::{Fingerprint, MAX_SIZE};
use super::reach::Reach;
use super::run::Run;
use super::world::schema;
use super::{Definition, Invalid, Program};
use crate::entity::{HandlerError, InvalidDefinition};
use crate::message::codec;
use crate::shard::GroupName;
use crate::workflow::{self, Context, Planned, Workflow};

/// What executions are of whose start brings its steps along. No workflow of a user is called so.
pub const INLINE: &str = "(inline)";
/// The largest input, in bytes.
pub const MAX_INPUT: usize = 256 << 10;
/// How many programs that are not the present one are kept for executions that began with them.
const KEPT: usize = 64;

/// Why a workflow that was written down is not served.
#[derive(Debug, thiserror::Error)]
pub enum NotRegistered {
    /// Something is wrong with its definition.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Its name or that of its shard group is malformed.
    #[error(transparent)]
    Name(#[from] InvalidDefinition),
}

/// A workflow that was written down.
///
/// # Guarantees
/// An execution does what the definition said when it began, whatever becomes of the definition: it keeps it in its journal.
pub struct Written {
    definition: workflow::Definition,
    present: Option<Present>,
    reach: Reach,
    kept: Mutex<VecDeque<(Fingerprint, Arc<Program>)>>,
}

/// What executions that begin now do.
struct Present {
    bytes: Bytes,
    fingerprint: Fingerprint,
    program: Arc<Program>,
    input: Option<Validator>,
}

/// Serves a workflow that was written down, in place of what was served under this name before. Executions that have begun go on with what
/// they began with.
///
/// # Errors
/// [`NotRegistered`] says what is wrong; then all stays as it was.
pub fn register(
    runtime: &(impl workflow::Runtime + ?Sized),
    reach: &Reach,
    name: &str,
    spec: &WorkflowTypeSpec,
) -> Result<(), NotRegistered> {
    let written = Written::new(name, spec, reach.clone())?;
    Ok(runtime.workflows().register(Arc::new(written))?)
}

/// Serves executions whose start brings its steps along.
///
/// # Errors
/// The host cannot take it.
pub fn register_inline(
    runtime: &(impl workflow::Runtime + ?Sized),
    reach: &Reach,
) -> Result<(), InvalidDefinition> {
    runtime.workflows().register(Arc::new(Written::inline(reach.clone())?))
}

impl Written {
    /// A workflow of this name.
    ///
    /// # Errors
    /// [`NotRegistered`] says what is wrong.
    pub fn new(name: &str, spec: &WorkflowTypeSpec, reach: Reach) -> Result<Self, NotRegistered> {
        let written = Definition::from(spec);
        let program = Arc::new(Program::compile(name, &written, None)?);
        let named = || -> Result<workflow::Definition, InvalidDefinition> {
            let mut definition = workflow::Definition::new(name)?;
            if let Some(group) = &spec.shard_group {
                definition = definition.in_group(GroupName::new(group)?);
            }
            definition.timeout = spec.timeout.map(cleat_crds::Duration::get);
            Ok(definition)
        };
        let bytes = written.encode().unwrap_or_default();
        let input = schema(written.input.as_ref());
        let present = Present {
            fingerprint: Fingerprint::of(&bytes),
            bytes,
            program,
            // The definition was checked.
            input: input.and_then(|schema| jsonschema::validator_for(&schema).ok()),
        };
        Ok(Self { definition: named()?, present: Some(present), reach, kept: Mutex::default() })
    }

    /// What runs executions whose start brings its steps along.
    ///
    /// # Errors
    /// None, as long as its name is one.
    pub fn inline(reach: Reach) -> Result<Self, InvalidDefinition> {
        let definition = workflow::Definition::new(INLINE)?;
        Ok(Self { definition, present: None, reach, kept: Mutex::default() })
    }

    /// The program in the bytes that an execution keeps.
    fn program(&self, bytes: &Bytes) -> Result<Arc<Program>, HandlerError> {
        let fingerprint = Fingerprint::of(bytes);
        if let Some(present) = self.present.as_ref().filter(|present| present.fingerprint == fingerprint) {
            return Ok(Arc::clone(&present.program));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, program)) = kept.iter().find(|(known, _)| *known == fingerprint) {
            return Ok(Arc::clone(program));
        }
        let definition = Definition::decode(bytes).map_err(|error| {
            HandlerError::failed("InvalidStep", format!("the steps cannot be read: {error}"))
        })?;
        let program = Program::compile(self.definition.name(), &definition, None)
            .map_err(|invalid| HandlerError::failed(invalid.reason(), invalid.to_string()))?;
        let program = Arc::new(program);
        kept.push_front((fingerprint, Arc::clone(&program)));
        kept.truncate(KEPT);
        Ok(program)
    }
}

impl Workflow for Written {
    fn definition(&self) -> &workflow::Definition {
        &self.definition
    }

    fn outline(&self) -> Vec<Planned> {
        // Each execution tells of its own steps.
        Vec::new()
    }

    fn begin(&self, input: &Bytes, given: Option<&Bytes>) -> Result<Option<Bytes>, HandlerError> {
        if input.len() > MAX_INPUT {
            let message = format!(
                "the input has {} bytes, and at most {MAX_INPUT} are allowed: give a reference to what is large",
                input.len()
            );
            return Err(HandlerError::failed("InputTooLarge", message));
        }
        match (&self.present, given) {
            (Some(present), None) => {
                let input = codec::to_json(input)?;
                let faults = present.input.iter().flat_map(|schema| schema.iter_errors(&input));
                let faults: Vec<_> = faults.map(|fault| told(&fault)).collect();
                if faults.is_empty() {
                    return Ok(Some(present.bytes.clone()));
                }
                Err(HandlerError::failed("InvalidInput", faults.join("; ")))
            }
            (Some(_), Some(_)) => {
                let message = format!("workflow {} has steps of its own: give none", self.definition.name());
                Err(HandlerError::failed("InvalidStart", message))
            }
            (None, None) => Err(HandlerError::failed("InvalidStart", "there are no steps: give some")),
            (None, Some(given)) if given.len() > MAX_SIZE => {
                let message =
                    format!("the steps have {} bytes, and at most {MAX_SIZE} are allowed", given.len());
                Err(HandlerError::failed("TooLarge", message))
            }
            (None, Some(given)) => {
                self.program(given)?;
                Ok(Some(given.clone()))
            }
        }
    }

    fn execute(&self, context: Context, input: Bytes) -> BoxFuture<'static, Result<Bytes, HandlerError>> {
        let program = match &context.about().definition {
            Some(bytes) => {
                self.program(bytes).map_err(|error| format!("its steps cannot be used: {error:?}"))
            }
            None => Err("the execution was begun by a workflow that was compiled".to_owned()),
        };
        let reach = self.reach.clone();
        async move {
            let program = match program {
                Ok(program) => program,
                Err(why) => return context.block(why).await,
            };
            let json = codec::to_json(&input)?;
            let input = program.input.value(&json).unwrap_or(Value::Null);
            Run::new(context, program, reach, input).execute().await
        }
        .boxed()
    }
}

/// What a schema has to say, with where.
fn told(fault: &jsonschema::ValidationError<'_>) -> String {
    let path = fault.instance_path().to_string();
    if path.is_empty() { fault.to_string() } else { format!("{path}: {fault}") }
}
