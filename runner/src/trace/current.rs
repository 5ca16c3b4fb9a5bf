//! Which trace the code that runs belongs to.

use crate::message::TraceContext;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// The trace that the running handler or activity belongs to: what it asks of others is a part of it.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Runs something as a part of a trace, if there is one.
pub async fn within<F: Future>(trace: Option<TraceContext>, work: F) -> F::Output {
    match trace {
        Some(trace) => CURRENT.scope(trace, work).await,
        None => work.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_runs_within_a_trace_knows_it_and_nothing_else_does() {
        let trace = TraceContext { trace_id: 1, parent_id: 2, sampled: true };
        assert_eq!(current(), None);
        assert_eq!(within(Some(trace.clone()), async { current() }).await, Some(trace.clone()));
        assert_eq!(within(None, async { current() }).await, None);
        let nested = within(Some(trace.clone()), within(None, async { current() })).await;
        assert_eq!(nested, Some(trace), "what has no trace of its own belongs to the one around it");
    }
}
