//! Who may do what.
//!
//! A [`Guard`] is asked before anything is done: [`Open`] lets everybody in, [`kubernetes`] asks the API server.

pub mod kubernetes;

use std::sync::Arc;

use async_trait::async_trait;

use crate::message::EntityType;

/// What somebody proves itself with.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credential {
    bearer: Option<String>,
}

impl Credential {
    /// A bearer token.
    pub fn bearer(token: impl Into<String>) -> Self {
        Self { bearer: Some(token.into()) }
    }

    /// What an `Authorization` header says.
    pub fn of_header(header: Option<&str>) -> Self {
        let token = header.and_then(|header| {
            let (scheme, token) = header.split_once(' ')?;
            let token = token.trim();
            (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
        });
        Self { bearer: token }
    }

    /// The token, if there is one.
    pub fn token(&self) -> Option<&str> {
        self.bearer.as_deref()
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Nobody is told a token, not even a log.
        f.debug_struct("Credential").field("bearer", &self.bearer.as_ref().map(|_| "…")).finish()
    }
}

/// Something that somebody wants to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// To know what can be asked.
    Discover,
    /// To ask the entities of a type.
    Call(EntityType),
    /// To read the state and the reply of a request.
    ReadRequest,
    /// To stop a request.
    InterruptRequest,
    /// To start executions of workflows.
    StartWorkflow,
    /// To list executions.
    ListWorkflows,
    /// To read an execution: its description, its history, its result and what it shows.
    ReadWorkflow,
    /// To signal, cancel, suspend, resume, retry or reset an execution.
    ChangeWorkflow,
    /// To end an execution without undoing what it did.
    TerminateWorkflow,
    /// To list dead letters.
    ListDeadLetters,
    /// To read a dead letter.
    ReadDeadLetter,
    /// To try a dead letter again.
    ReplayDeadLetter,
    /// To forget a dead letter.
    DropDeadLetter,
}

/// An action in the words of Kubernetes' RBAC, in the API group `cleat.dev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attributes<'a> {
    /// What is done.
    pub verb: &'static str,
    /// With what.
    pub resource: &'static str,
    /// With which part of it.
    pub subresource: &'static str,
    /// With which of them; empty for any.
    pub name: &'a str,
}

impl Action {
    /// The same in the words of Kubernetes' RBAC. None if it is open to everybody who is known.
    pub fn attributes(&self) -> Option<Attributes<'_>> {
        let of = |verb, resource, subresource| Some(Attributes { verb, resource, subresource, name: "" });
        match self {
            Self::Discover => None,
            Self::Call(entity_type) => Some(Attributes {
                verb: "create",
                resource: "entitytypes",
                subresource: "call",
                name: entity_type.as_str(),
            }),
            Self::ReadRequest => of("get", "entitytypes", "requests"),
            Self::InterruptRequest => of("delete", "entitytypes", "requests"),
            Self::StartWorkflow => of("create", "workflows", ""),
            Self::ListWorkflows => of("list", "workflows", ""),
            Self::ReadWorkflow => of("get", "workflows", ""),
            Self::ChangeWorkflow => of("update", "workflows", ""),
            Self::TerminateWorkflow => of("delete", "workflows", ""),
            Self::ListDeadLetters => of("list", "entitytypes", "deadletters"),
            Self::ReadDeadLetter => of("get", "entitytypes", "deadletters"),
            Self::ReplayDeadLetter => of("update", "entitytypes", "deadletters"),
            Self::DropDeadLetter => of("delete", "entitytypes", "deadletters"),
        }
    }
}

/// Who asks, once that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// Its name; none if nobody was asked who it is.
    pub user: Option<Arc<str>>,
}

/// Why somebody is not let in.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Denied {
    /// It is not known who it is.
    #[error("who is asking is not known: {0}")]
    Unauthenticated(String),
    /// It is known, and may not.
    #[error("{user} may not do this: {why}")]
    Forbidden {
        /// Who.
        user: String,
        /// What would be needed.
        why: String,
    },
    /// Nobody could be asked.
    #[error("who is asking, and what they may do, cannot be found out at the moment")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl Denied {
    /// One word for problems and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unauthenticated(_) => "Unauthenticated",
            Self::Forbidden { .. } => "Forbidden",
            Self::Unavailable(_) => "AuthenticationUnavailable",
        }
    }
}

/// Decides who may do what.
#[async_trait]
pub trait Guard: Send + Sync + 'static {
    /// Who this is, if they may do that.
    ///
    /// # Errors
    /// [`Denied`] says why not.
    async fn allow(&self, credential: &Credential, action: &Action) -> Result<Caller, Denied>;
}

/// Lets everybody do everything: for a machine of one's own, and behind somebody else who decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

#[async_trait]
impl Guard for Open {
    async fn allow(&self, _: &Credential, _: &Action) -> Result<Caller, Denied> {
        Ok(Caller::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_found_in_its_header_and_told_to_nobody() {
        let token = |header| Credential::of_header(header).token().map(str::to_owned);
        assert_eq!(token(Some("Bearer secret")), Some("secret".to_owned()));
        assert_eq!(token(Some("bearer  secret ")), Some("secret".to_owned()));
        for header in [None, Some("Basic c2VjcmV0"), Some("Bearer "), Some("secret")] {
            assert_eq!(token(header), None, "{header:?}");
        }
        assert!(!format!("{:?}", Credential::bearer("secret")).contains("secret"));
    }
}
