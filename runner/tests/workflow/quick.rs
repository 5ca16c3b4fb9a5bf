//! Activities that are known to be quick are begun by whoever asks for them, and nobody can tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cleat_runner::workflow::activity::{self, Backoff, Failed};
use cleat_runner::workflow::join_all;
use cleat_runner::workflow::journal::Event;
use futures::FutureExt;
use tokio::sync::Barrier;

use crate::flow::{Ledger, act, flow, give, text};
use crate::world::{Place, World, on_both_stores};

on_both_stores!(quick_ones_that_fail_or_panic_are_tried_again, quick_ones_that_wait_do_so_side_by_side,);

/// More than it takes to be known as quick.
const MANY: u32 = 40;

async fn quick_ones_that_fail_or_panic_are_tried_again(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, input| {
        let ledger = noted.clone();
        async move {
            for _ in 0..MANY {
                act(&context, &ledger, "quick").await;
            }
            let tries = Arc::new(AtomicU32::new(0));
            let backoff = Backoff::Constant(std::time::Duration::from_millis(1));
            let options = activity::Options { attempts: Some(5), backoff, ..activity::Options::default() };
            let shaky = context.activity("shaky", options, move |_| {
                let attempt = tries.fetch_add(1, Ordering::SeqCst);
                async move {
                    match attempt {
                        0 => panic!("not yet"),
                        1 => Err(Failed::retry("not now")),
                        _ => give("there"),
                    }
                }
                .boxed()
            });
            Ok(format!("{input}: {}", text(shaky.await)))
        }
    });
    assert_eq!(client.execute(&"o-1".into()).await.unwrap(), "o-1: there");
    assert_eq!(ledger.count("quick"), usize::try_from(MANY).unwrap());
    let history = client.history("o-1").await.unwrap();
    let attempts: Vec<_> = history
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Attempt { error, .. } => Some(error.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts[0].contains("the activity panicked: not yet"), "{attempts:?}");
    assert!(attempts[1].contains("not now"), "{attempts:?}");
}

async fn quick_ones_that_wait_do_so_side_by_side(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let ledger = noted.clone();
        async move {
            for _ in 0..MANY {
                act(&context, &ledger, "quick").await;
            }
            // None of them comes back before all are under way.
            let all = Arc::new(Barrier::new(5));
            let waiting = (0..5).map(|number| {
                let all = Arc::clone(&all);
                context.activity("together", activity::Options::default(), move |_| {
                    let all = Arc::clone(&all);
                    async move {
                        all.wait().await;
                        give(&number.to_string())
                    }
                    .boxed()
                })
            });
            Ok(join_all(waiting).await.into_iter().map(text).collect::<Vec<_>>().join(" "))
        }
    });
    assert_eq!(client.execute(&"o-1".into()).await.unwrap(), "0 1 2 3 4");
}
