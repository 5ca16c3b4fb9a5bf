//! Warnings of the server, which the driver passes to nobody but the log.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::LazyLock;

use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// What the driver calls its events about notices of the server.
const TARGET: &str = "sqlx::postgres::notice";

thread_local! {
    /// What was captured while a statement was polled on this thread.
    static CAPTURED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a statement, and says which warning the server sent meanwhile, if any.
///
/// Its text is in the server's language, so nobody but a human can tell one warning from another.
///
/// # Caveats
/// Nothing that is traced within reaches the log, so only the statement itself belongs there.
pub(super) async fn watch<F: Future>(statement: F) -> (F::Output, Option<String>) {
    static CAPTURE: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Capture));
    let mut statement = pin!(statement);
    let mut warning = None;
    let output = poll_fn(|context| {
        let _default = dispatcher::set_default(&CAPTURE);
        let polled = statement.as_mut().poll(context);
        if let Some(captured) = CAPTURED.take() {
            warning = Some(captured);
        }
        polled
    });
    let output = output.await;
    (output, warning)
}

/// Takes the warnings of the server, and nothing else.
struct Capture;

fn is_warning(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TARGET && *metadata.level() <= Level::WARN
}

impl Subscriber for Capture {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_warning(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_warning(metadata)
    }

    /// So that nobody else's events become more expensive.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        CAPTURED.set(Some(text.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
