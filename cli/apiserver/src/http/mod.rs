//! HTTP as the API uses it: paths, parameters, media types, bodies.

mod accept;
mod decode;
mod query;
mod reply;
mod route;

pub(crate) use accept::{Format, View, accept};
pub(crate) use decode::{Decoded, decode_json, decode_yaml};
pub(crate) use query::Query;
pub(crate) use reply::{Reply, json_text, object, plain, stream, with_warnings};
pub(crate) use route::{Route, Target, route};
