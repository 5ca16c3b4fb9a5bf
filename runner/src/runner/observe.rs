//! What is there for those who look on: the admin port, and the way of spans to their collector.

use futures::FutureExt;

use super::part::{Part, Place, Port};
use crate::admin::{self, Server};
use crate::trace::Exporter;

/// The parts of every runner. They are started first, so they are ended last.
pub(super) fn parts(exporter: Option<Exporter>) -> impl Iterator<Item = Part> {
    let traces = exporter.map(|exporter| Part {
        name: "traces",
        start: Box::new(|place: Place| async { Ok(exporter.run(place.stop).boxed()) }.boxed()),
    });
    let admin = Part {
        name: "admin",
        start: Box::new(|place: Place| {
            // Taken now: what nobody has taken soon is closed.
            let listener = place.listener(Port::Admin);
            let serving = async move {
                match listener {
                    Some(listener) => server(&place).serve(listener, place.stop).await,
                    None => place.stop.cancelled().await,
                }
            };
            async { Ok(serving.boxed()) }.boxed()
        }),
    };
    traces.into_iter().chain([admin])
}

fn server(place: &Place) -> Server {
    let settings = &place.settings;
    let version = settings.version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
    let cluster = settings.cluster_uid.as_deref().unwrap_or("local");
    let options = admin::Options::new(settings.name.as_str(), version, cluster);
    let parts = admin::Parts {
        node: place.node.clone(),
        metrics: place.metrics.clone(),
        verify: place.token.clone(),
        definitions: place.definitions.subscribe(),
    };
    Server::new(options, parts)
}
