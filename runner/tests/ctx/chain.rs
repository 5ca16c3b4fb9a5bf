//! Calls that come back to who made them.

use std::sync::Arc;

use cleat_runner::prelude::*;
use tokio::sync::Semaphore;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_call_to_itself_fails_at_once,
    a_call_back_into_its_own_chain_fails_at_once_and_names_the_chain,
    a_call_back_runs_beside_its_caller_where_there_is_room,
    a_call_back_runs_though_others_wait_before_it,
    a_call_back_for_which_there_is_no_room_fails_at_once,
    who_changes_the_state_is_never_called_back,
    a_chain_that_never_ends_is_cut,
    nobody_outside_can_pretend_to_be_in_a_chain,
);

/// What to do: ask the next, who is given the rest.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Path {
    End,
    /// Ask an entity of this name, by a persisted method, and so on.
    Ask(String, Box<Path>),
    /// The same by a volatile method.
    Peek(String, Box<Path>),
    /// Wait until somebody lets it go, then go on.
    Hold(Box<Path>),
    /// Ask the next of endlessly many.
    Forever(u32),
}

/// Handles one thing at a time.
#[entity(name = "single")]
#[derive(Clone)]
struct Single;

/// Handles three things at a time, and changes its state alone.
#[entity(name = "triple", state = u32, concurrency = 3)]
#[derive(Clone)]
struct Triple {
    begun: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

async fn walk(context: &mut Context, path: Path) -> Result<String, String> {
    let here = context.address().to_string();
    let singles = context.client::<Single>().map_err(|error| error.to_string())?;
    let triples = context.client::<Triple>().map_err(|error| error.to_string())?;
    let call = match path {
        Path::End | Path::Hold(_) => return Ok(here),
        Path::Forever(number) => singles.follow(format!("n{number}"), &Path::Forever(number + 1)),
        Path::Ask(to, rest) if to.starts_with('t') => triples.follow(to, &rest),
        Path::Ask(to, rest) if to.starts_with('w') => triples.change(to.replace('w', "t"), &rest),
        Path::Ask(to, rest) => singles.follow(to, &rest),
        Path::Peek(to, rest) if to.starts_with('t') => triples.peek(to, &rest),
        Path::Peek(to, rest) => singles.peek(to, &rest),
    };
    let rest = context.call(call).await.map_err(|error| match error {
        client::Error::Refused(text) => text,
        client::Error::Entity(error) => format!("{}! {error}", error.reason()),
    })?;
    Ok(format!("{here} {rest}"))
}

#[entity_impl]
impl Single {
    #[rpc(persisted)]
    pub async fn follow(&self, context: &mut Context, path: Path) -> Result<String, String> {
        walk(context, path).await
    }

    #[rpc]
    pub async fn peek(&self, context: &mut Context, path: Path) -> Result<String, String> {
        walk(context, path).await
    }
}

#[entity_impl]
impl Triple {
    #[rpc(persisted)]
    pub async fn follow(&self, context: &mut Context, path: Path) -> Result<String, String> {
        let Path::Hold(rest) = path else { return walk(context, path).await };
        self.begun.add_permits(1);
        self.open.acquire().await.map_err(|error| error.to_string())?.forget();
        walk(context, *rest).await
    }

    #[rpc]
    pub async fn peek(&self, context: &mut Context, path: Path) -> Result<String, String> {
        self.follow(context, path).await
    }

    #[rpc(persisted)]
    pub async fn change(
        &self,
        changes: &mut u32,
        context: &mut Context,
        path: Path,
    ) -> Result<String, String> {
        *changes += 1;
        walk(context, path).await
    }
}

fn ask(to: &str, rest: Path) -> Path {
    Path::Ask(to.to_owned(), Box::new(rest))
}

fn peek(to: &str, rest: Path) -> Path {
    Path::Peek(to.to_owned(), Box::new(rest))
}

async fn open(place: Place) -> (World, SingleClient, TripleClient, Triple) {
    let world = World::new(place).await;
    let singles = Single.register(&world.host).unwrap();
    let triple = Triple { begun: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) };
    let triples = triple.clone().register(&world.host).unwrap();
    (world, singles, triples, triple)
}

async fn a_call_to_itself_fails_at_once(place: Place) {
    let (_world, singles, _, _) = open(place).await;
    for path in [ask("s", Path::End), peek("s", Path::End)] {
        let error = singles.follow("s", &path).await.unwrap_err().refused().unwrap();
        assert!(error.starts_with("Deadlock! single/s is waiting for this very call"), "{error}");
        let error = singles.peek("s", &path).await.unwrap_err().refused().unwrap();
        assert!(error.starts_with("Deadlock! "), "{error}");
    }
    assert_eq!(singles.follow("s", &Path::End).await.unwrap(), "single/s", "it is free again");
}

async fn a_call_back_into_its_own_chain_fails_at_once_and_names_the_chain(place: Place) {
    let (_world, singles, _, _) = open(place).await;
    for path in [
        ask("b", ask("c", ask("a", Path::End))),
        peek("b", ask("c", peek("a", Path::End))),
        ask("b", peek("c", peek("a", Path::End))),
    ] {
        let error = singles.follow("a", &path).await.unwrap_err().refused().unwrap();
        assert!(error.contains("(single/a -> single/b -> single/c -> single/a)"), "{error}");
    }
    let whole = singles.follow("a", &ask("b", ask("c", ask("d", Path::End)))).await.unwrap();
    assert_eq!(whole, "single/a single/b single/c single/d");
}

async fn a_call_back_runs_beside_its_caller_where_there_is_room(place: Place) {
    let (_world, singles, triples, _) = open(place).await;
    let there_and_back = ask("s", ask("t", Path::End));
    assert_eq!(triples.follow("t", &there_and_back).await.unwrap(), "triple/t single/s triple/t");
    let twice = peek("t", ask("t", Path::End));
    assert_eq!(triples.follow("t", &twice).await.unwrap(), "triple/t triple/t triple/t");
    let error = triples.follow("t", &ask("t", ask("t", ask("t", Path::End)))).await.unwrap_err();
    assert!(error.refused().unwrap().starts_with("Deadlock! "), "the fourth has no room");
    assert_eq!(singles.follow("s", &ask("t", Path::End)).await.unwrap(), "single/s triple/t");
}

/// A writer waits until the caller is done, and whoever comes later waits behind it, except who is awaited.
async fn a_call_back_runs_though_others_wait_before_it(place: Place) {
    let (_world, _, triples, triple) = open(place).await;
    for back in [ask("t", Path::End), peek("t", Path::End)] {
        let caller = spawn(&triples, ask("tower", hold(back)));
        triple.begun.acquire().await.unwrap().forget();
        let writer = triples.change("t", &Path::End).start().await.unwrap();
        let behind = triples.follow("t", &Path::End).start().await.unwrap();
        triple.open.add_permits(1);
        assert_eq!(caller.await.unwrap(), Ok("triple/t triple/tower triple/t".to_owned()));
        assert_eq!(writer.await.unwrap(), "triple/t");
        assert_eq!(behind.await.unwrap(), "triple/t");
    }
}

fn hold(rest: Path) -> Path {
    Path::Hold(Box::new(rest))
}

fn spawn(triples: &TripleClient, path: Path) -> tokio::task::JoinHandle<Result<String, String>> {
    let triples = triples.clone();
    tokio::spawn(async move {
        triples.follow("t", &path).await.map_err(|error| error.refused().unwrap_or_default())
    })
}

async fn a_call_back_for_which_there_is_no_room_fails_at_once(place: Place) {
    let (_world, _, triples, triple) = open(place).await;
    let (one, two) = (spawn(&triples, hold(Path::End)), spawn(&triples, hold(Path::End)));
    triple.begun.acquire_many(2).await.unwrap().forget();
    for path in [ask("s", ask("t", Path::End)), peek("s", peek("t", Path::End))] {
        let error = triples.follow("t", &path).await.unwrap_err().refused().unwrap();
        assert!(error.starts_with("Deadlock! "), "{error}");
        assert!(error.contains("triple/t -> single/s -> triple/t"), "{error}");
    }
    triple.open.add_permits(2);
    assert!(one.await.unwrap().is_ok() && two.await.unwrap().is_ok());
    assert!(triples.follow("t", &ask("s", ask("t", Path::End))).await.is_ok());
}

async fn who_changes_the_state_is_never_called_back(place: Place) {
    let (_world, _, triples, _) = open(place).await;
    let error = triples.change("t", &ask("s", peek("t", Path::End))).await.unwrap_err().refused().unwrap();
    assert!(error.starts_with("Deadlock! "), "{error}");
    // Nor can the state be changed by who is called back.
    let error = triples.follow("t", &ask("s", ask("w", Path::End))).await.unwrap_err().refused().unwrap();
    assert!(error.starts_with("Deadlock! "), "{error}");
    assert_eq!(triples.change("t", &Path::End).await.unwrap(), "triple/t");
}

async fn a_chain_that_never_ends_is_cut(place: Place) {
    let (_world, singles, _, _) = open(place).await;
    let error = singles.follow("start", &Path::Forever(0)).await.unwrap_err().refused().unwrap();
    assert!(
        error.starts_with("TooDeep! 32 entities wait for each other already (single/start -> "),
        "{error}"
    );
}

async fn nobody_outside_can_pretend_to_be_in_a_chain(place: Place) {
    let (_world, singles, _, _) = open(place).await;
    let call = singles.follow("a", &ask("b", Path::End));
    let call = call.header("cleat-chain", r#"[{"type":"single","id":"b","request":1}]"#);
    assert_eq!(call.header("cleat-derived-key", "").await.unwrap(), "single/a single/b");
}
