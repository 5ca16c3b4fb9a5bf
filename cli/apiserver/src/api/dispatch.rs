//! From a request to its verb.

use super::reviews::same_secret;
use super::{Api, Call};
use crate::discovery;
use crate::http::{self, Query, Reply, Route, Target, accept, route};
use crate::registry::builtin;
use crate::status::Failure;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, USER_AGENT};
use hyper::{Method, Request};
use std::sync::Arc;

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The media type of a body, without its parameters.
fn media(headers: &HeaderMap) -> String {
    text(headers, CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned()
}

/// Paths that need no token: they tell nothing but that the server is there.
fn is_public(path: &str) -> bool {
    path == "/version" || ["/healthz", "/livez", "/readyz"].iter().any(|open| path.starts_with(open))
}

impl Api {
    /// Answers a request. Failures become a Status; nothing is returned as an error.
    pub(crate) async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Reply {
        match self.handle(request).await {
            Ok(reply) => reply,
            Err(failure) => failure.into(),
        }
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let token = text(headers, AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match token {
            Some(token) if same_secret(token, &self.user.token) => Ok(()),
            _ => Err(Failure::unauthorized()),
        }
    }

    async fn handle(self: &Arc<Self>, request: Request<Incoming>) -> Result<Reply, Failure> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if !is_public(path) {
            self.authenticate(&head.headers)?;
        }
        let query = Query::parse(head.uri.query().unwrap_or_default());
        match route(path) {
            Route::Other(segments) => {
                let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
                if head.method != Method::GET && head.method != Method::HEAD {
                    return Err(Failure::method_not_allowed());
                }
                let accepted = text(&head.headers, ACCEPT).unwrap_or_default();
                Ok(discovery::answer(self, &parts, accepted, &head.headers))
            }
            Route::Resource(target) => {
                let body = self.read_body(body).await?;
                self.resource(target, query, &head.method, &head.headers, &body).await
            }
        }
    }

    async fn read_body(&self, body: Incoming) -> Result<Bytes, Failure> {
        match Limited::new(body, self.limits.body).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Failure::too_large(self.limits.body))
            }
            Err(error) => Err(Failure::bad_request(error.to_string())),
        }
    }

    async fn resource(
        self: &Arc<Self>,
        target: Target,
        query: Query,
        method: &Method,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let media = media(headers);
        let served = self.registry.served();
        let review = builtin::REVIEWS.iter().find(|review| {
            review.group == target.group && review.plural == target.plural && target.version == "v1"
        });
        if let Some(review) = review {
            if method != Method::POST
                || !target.name.is_empty()
                || review.namespaced == target.namespace.is_empty()
            {
                return Err(Failure::method_not_allowed());
            }
            let (format, _) = accept(text(headers, ACCEPT))?;
            return self.review(review, format, &media, body);
        }
        let found = served.get(&target.group, &target.plural).and_then(|resource| {
            let version = resource.version(&target.version)?;
            Some((resource.clone(), version.clone()))
        });
        let Some((resource, version)) = found else {
            let builtin =
                target.group.is_empty() || discovery::is_builtin_group(&target.group, &target.version);
            return if builtin {
                Err(Failure::no_resource())
            } else {
                Ok(http::plain(404, "404 page not found\n"))
            };
        };
        let misplaced = !resource.namespaced && !target.namespace.is_empty()
            || resource.namespaced && target.namespace.is_empty() && !target.name.is_empty();
        if misplaced && resource.builtin().is_none() {
            return Ok(http::plain(404, "404 page not found\n"));
        }
        if misplaced {
            return Err(Failure::no_resource());
        }
        let log = target.subresource == "log";
        let (format, view) = if log { Default::default() } else { accept(text(headers, ACCEPT))? };
        let mut call = Call {
            resource,
            version,
            target,
            query,
            format,
            view,
            agent: text(headers, USER_AGENT).unwrap_or_default().to_owned(),
            options: match method.as_str() {
                "POST" => "CreateOptions",
                "PUT" => "UpdateOptions",
                "PATCH" => "PatchOptions",
                _ => "DeleteOptions",
            },
            warnings: Vec::new(),
        };
        let reply = self.verb(&mut call, method, &media, body).await;
        let mut warnings: Vec<String> = call.version.deprecated.iter().cloned().collect();
        warnings.append(&mut call.warnings);
        Ok(http::with_warnings(reply.unwrap_or_else(Reply::from), &warnings))
    }

    async fn verb(
        self: &Arc<Self>,
        call: &mut Call,
        method: &Method,
        media: &str,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let named = !call.target.name.is_empty();
        let part = call.target.subresource.clone();
        let verb = method.as_str();
        let custom = call.resource.builtin().is_none();
        let everywhere = call.resource.namespaced && call.target.namespace.is_empty();
        match (verb, part.as_str()) {
            ("POST" | "DELETE", "") if custom && everywhere => Ok(http::plain(404, "404 page not found\n")),
            ("PUT" | "PATCH", "") if custom && !named => Err(Failure::bad_request("name must be provided")),
            ("GET" | "HEAD", "") if !named && call.query.flag("watch") == Some(true) => {
                self.watch(call).await
            }
            ("GET" | "HEAD", "") if named => self.get(call).await,
            ("GET" | "HEAD", "") => self.list(call).await,
            // What a path to a custom object ends in does not matter to a create.
            ("POST", "") if !named || custom => {
                if everywhere {
                    return Err(Failure::method_not_allowed());
                }
                self.create(call, media, body).await
            }
            ("PUT", "") if named => self.update(call, media, body).await,
            ("PATCH", "") if named => self.patch(call, media, body).await,
            ("DELETE", "") if named => self.delete(call, media, body).await,
            ("DELETE", "") => {
                if everywhere {
                    return Err(Failure::method_not_allowed());
                }
                self.delete_collection(call, media, body).await
            }
            ("GET" | "HEAD", "status") if call.version.status => self.get(call).await,
            ("PUT", "status") if call.version.status => self.update(call, media, body).await,
            ("PATCH", "status") if call.version.status => self.patch(call, media, body).await,
            ("GET" | "HEAD", "scale") => self.get_scale(call),
            ("PUT", "scale") => self.update_scale(call, media, body).await,
            ("PATCH", "scale") => self.patch_scale(call, media, body).await,
            ("PUT", "finalize") if call.resource.is("", "namespaces") => {
                self.finalize(call, media, body).await
            }
            ("GET" | "HEAD", "log") if call.resource.is("", "pods") => self.pod_logs(call).await,
            (_, "") => Err(Failure::method_not_allowed()),
            (_, "status") if custom && call.version.status => {
                let verb = if verb == "DELETE" { "delete" } else { "create" };
                Err(Failure::unsupported_verb(&call.named(), verb))
            }
            (_, "status") if call.version.status => Err(Failure::method_not_allowed()),
            (_, "scale") if call.version.scale.is_some() => Err(Failure::method_not_allowed()),
            _ if custom => Err(call.not_found()),
            _ => Err(Failure::no_resource()),
        }
    }
}
