//! Spans as OTLP has them in JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Ended, Kind};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    kind: u8,
    // Numbers of 64 bits are text in the JSON of protobuf.
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
}

/// The body of a request that takes spans to a collector.
pub(super) fn body(
    resource: &[(&'static str, String)],
    spans: &[Ended],
) -> Result<Vec<u8>, serde_json::Error> {
    let spans: Vec<_> = spans.iter().map(write).collect();
    let scope = json!({"name": "cleat", "version": env!("CARGO_PKG_VERSION")});
    serde_json::to_vec(&json!({"resourceSpans": [{
        "resource": {"attributes": attributes(resource)},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]}))
}

fn write(span: &Ended) -> Span<'_> {
    Span {
        trace_id: format!("{:032x}", span.context.trace_id),
        span_id: format!("{:016x}", span.context.parent_id),
        parent_span_id: span.parent.map(|parent| format!("{parent:016x}")),
        name: &span.name,
        kind: match span.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
        start_time_unix_nano: nanos(span.began),
        end_time_unix_nano: nanos(span.began + span.took),
        attributes: attributes(&span.attributes),
        status: span.error.as_ref().map(|error| json!({"code": 2, "message": error})),
    }
}

fn attributes(attributes: &[(&'static str, String)]) -> Vec<Value> {
    attributes.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect()
}

fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::message::TraceContext;

    #[test]
    fn a_span_is_written_as_collectors_read_it() {
        let span = Ended {
            context: TraceContext { trace_id: 0xab, parent_id: 0xcd, sampled: true },
            parent: Some(1),
            name: "inventory.reserve".into(),
            kind: Kind::Server,
            began: UNIX_EPOCH + Duration::from_nanos(1_500_000_000_000_000_001),
            took: Duration::from_nanos(2),
            attributes: vec![("cleat.shard", "default/3".to_owned())],
            error: Some("out of stock".to_owned()),
        };
        let body = body(&[("service.name", "cleat-runner".to_owned())], &[span]).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let resource = &body["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "cleat-runner");
        assert_eq!(
            resource["scopeSpans"][0]["spans"][0],
            json!({
                "traceId": "000000000000000000000000000000ab",
                "spanId": "00000000000000cd",
                "parentSpanId": "0000000000000001",
                "name": "inventory.reserve",
                "kind": 2,
                "startTimeUnixNano": "1500000000000000001",
                "endTimeUnixNano": "1500000000000000003",
                "attributes": [{"key": "cleat.shard", "value": {"stringValue": "default/3"}}],
                "status": {"code": 2, "message": "out of stock"},
            })
        );
    }
}
