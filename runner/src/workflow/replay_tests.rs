//! Functions over journals, without a store: what is replayed is what happened.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use proptest::prelude::*;

use super::activity::Options;
use super::context::{About, Context};
use super::function::{End, Function, Turn};
use super::journal::{Asked, Entry, Event, Kind, Step, Why};
use super::machine::Blocked;
use super::{Definition, Either, Workflow, join_all, select};
use crate::entity::HandlerError;
use crate::message::{EntityAddress, Outcome, Snowflake};
use crate::shard::GroupName;

type Body = dyn Fn(Context) -> BoxFuture<'static, Result<Bytes, HandlerError>> + Send + Sync;

/// A workflow that is what a test says.
struct Written {
    definition: Definition,
    body: Box<Body>,
}

impl Workflow for Written {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn execute(&self, context: Context, _: Bytes) -> BoxFuture<'static, Result<Bytes, HandlerError>> {
        (self.body)(context)
    }
}

fn written<F>(body: impl Fn(Context) -> F + Send + Sync + 'static) -> Written
where
    F: Future<Output = Result<Bytes, HandlerError>> + Send + 'static,
{
    let body = Box::new(move |context| body(context).boxed());
    Written { definition: Definition::new("test").unwrap(), body }
}

fn begin(workflow: &Written, journal: &[Entry]) -> Function {
    let about = About {
        definition: None,
        address: EntityAddress::new("workflow:test", "1").unwrap(),
        group: GroupName::default(),
        run: Snowflake::new(7),
        seed: 5,
    };
    Function::new(workflow, about, Bytes::new(), 0, journal, || {})
}

/// Runs a function over a whole journal.
fn replay(workflow: &Written, journal: &[Entry]) -> Turn {
    let mut function = begin(workflow, journal);
    let mut turn = function.turn();
    for entry in journal {
        if turn != Turn::Waiting {
            break;
        }
        turn = function.deliver(entry.clone());
    }
    turn
}

async fn act(context: &Context, name: &str) -> Outcome {
    context.activity(name, Options::default(), |_| async { Ok(Bytes::new()) }.boxed()).await
}

fn done(step: u32, name: &str, value: &'static str) -> Entry {
    let outcome = Outcome::Success(Bytes::from_static(value.as_bytes()));
    Entry {
        at: i64::from(step) + 1,
        event: Event::Activity { step: Step(step), name: name.into(), attempts: 1, outcome },
    }
}

fn slept(step: u32) -> Entry {
    Entry { at: 100, event: Event::Slept { step: Step(step), name: String::new() } }
}

fn ok(text: impl Into<String>) -> Result<Bytes, HandlerError> {
    Ok(Bytes::from(text.into()))
}

#[test]
fn another_activity_than_the_recorded_one_blocks_and_says_which() {
    let workflow = written(|context| async move {
        act(&context, "reserve").await;
        act(&context, "ship").await;
        ok("")
    });
    let turn = replay(&workflow, &[done(0, "reserve", ""), done(1, "charge", "")]);
    let recorded = Asked::new(Kind::Activity, "charge");
    let asked = Asked::new(Kind::Activity, "ship");
    assert_eq!(turn, Turn::Blocked(Blocked::Mismatch { step: Step(1), recorded, asked }));
    let Turn::Blocked(blocked) = turn else { panic!("it is blocked") };
    assert!(blocked.to_string().starts_with(
        "step 1 was activity `charge` when it was recorded, and now the function asks for activity `ship`"
    ));
}

#[test]
fn a_step_that_is_gone_blocks_at_the_end_of_the_function() {
    let workflow = written(|context| async move {
        act(&context, "reserve").await;
        ok("")
    });
    let turn = replay(&workflow, &[done(0, "reserve", ""), done(1, "charge", "")]);
    let recorded = "activity `charge`".to_owned();
    assert_eq!(turn, Turn::Blocked(Blocked::NotAsked { step: Step(1), recorded }));
}

#[test]
fn an_answer_that_comes_before_its_question_blocks() {
    let workflow = written(|context| async move {
        act(&context, "a").await;
        act(&context, "b").await;
        ok("")
    });
    let turn = replay(&workflow, &[done(1, "b", ""), done(0, "a", "")]);
    assert!(matches!(turn, Turn::Blocked(Blocked::NotAsked { step: Step(1), .. })), "{turn:?}");
}

#[test]
fn a_new_path_is_taken_by_those_who_have_not_been_there() {
    let old = written(|context| async move {
        act(&context, "a").await;
        act(&context, "b").await;
        ok("old")
    });
    let new = written(|context| async move {
        act(&context, "a").await;
        let second = if context.patched("better") { "better b" } else { "b" };
        act(&context, second).await;
        ok(second)
    });
    let journal = [done(0, "a", ""), done(1, "b", "")];
    assert_eq!(replay(&old, &journal), Turn::Ended(End::Completed("old".into())));
    // Those who had been there go on as they did.
    assert_eq!(replay(&new, &journal), Turn::Ended(End::Completed("b".into())));
    // Those who had not are told apart by an entry, which is owed before anything else is done.
    let mut function = begin(&new, &journal[..1]);
    function.turn();
    assert_eq!(function.deliver(journal[0].clone()), Turn::Waiting);
    let owed = function.context().state().machine.take_owed();
    assert_eq!(owed, [Event::Patched { step: Step(1), id: "better".into() }]);
    let patched = Entry { at: 3, event: owed[0].clone() };
    let journal = [done(0, "a", ""), patched, done(2, "better b", "")];
    assert_eq!(replay(&new, &journal), Turn::Ended(End::Completed("better b".into())));
}

#[test]
fn the_loser_of_a_race_is_told_to_stop_and_that_is_owed_to_the_journal_once() {
    let workflow = written(|context| async move {
        let won = select(act(&context, "slow"), context.sleep(Duration::from_secs(1))).await;
        act(&context, "after").await;
        ok(format!("{:?}", matches!(won, Either::Second(()))))
    });
    let mut function = begin(&workflow, &[slept(1)]);
    function.turn();
    assert_eq!(function.deliver(slept(1)), Turn::Waiting);
    let owed = function.context().state().machine.take_owed();
    assert_eq!(owed, [Event::Dropped { step: Step(0) }]);
    assert_eq!(function.context().state().machine.take_dropped(), [Step(0)]);
    // Its answer may come all the same; nobody hears it.
    let journal =
        [slept(1), done(0, "slow", ""), Entry { at: 5, event: owed[0].clone() }, done(2, "after", "")];
    assert_eq!(replay(&workflow, &journal), Turn::Ended(End::Completed("true".into())));
    let mut function = begin(&workflow, &journal);
    function.turn();
    function.deliver(journal[0].clone());
    assert_eq!(function.context().state().machine.take_owed(), []);
}

#[test]
fn what_the_context_does_not_offer_blocks_when_it_wakes_the_function() {
    let (sender, receiver) = futures::channel::oneshot::channel::<()>();
    let receiver = Mutex::new(Some(receiver));
    let workflow = written(move |_| {
        let receiver = receiver.lock().unwrap().take();
        async move {
            if let Some(receiver) = receiver {
                let _ = receiver.await;
            }
            ok("")
        }
    });
    let mut function = begin(&workflow, &[]);
    assert_eq!(function.turn(), Turn::Waiting);
    std::thread::spawn(move || sender.send(())).join().unwrap().unwrap();
    assert_eq!(function.turn(), Turn::Blocked(Blocked::Foreign));
}

#[test]
fn cancellation_undoes_what_was_done_in_reverse() {
    let workflow = written(|context| async move {
        for name in ["a", "b"] {
            act(&context, name).await;
            let inner = context.clone();
            context.compensate(move || {
                async move {
                    act(&inner, &format!("undo {name}")).await;
                    Ok(())
                }
                .boxed()
            });
        }
        context.sleep(Duration::from_secs(1000)).await;
        ok("")
    });
    let cancel = Entry { at: 9, event: Event::Cancel(Why::Requested) };
    let journal = [done(0, "a", ""), done(1, "b", ""), cancel, done(3, "undo b", ""), done(4, "undo a", "")];
    assert_eq!(replay(&workflow, &journal[..4]), Turn::Waiting);
    assert_eq!(replay(&workflow, &journal), Turn::Ended(End::Cancelled));
}

#[test]
fn a_function_that_looks_after_its_cancellation_is_not_stopped() {
    let workflow = written(|context| async move {
        let cancelled = context.cancelled();
        let won = select(context.sleep(Duration::from_secs(1000)), cancelled).await;
        assert_eq!(won, Either::Second(()));
        act(&context, "tidy up").await;
        ok("tidy")
    });
    let cancel = Entry { at: 9, event: Event::Cancel(Why::Requested) };
    let journal = [cancel, done(1, "tidy up", "")];
    assert_eq!(replay(&workflow, &journal), Turn::Ended(End::Completed("tidy".into())));
}

#[test]
fn a_panic_is_caught() {
    let workflow = written(|context| async move {
        act(&context, "a").await;
        if context.id() == "1" {
            panic!("out of ideas");
        }
        ok("")
    });
    assert_eq!(replay(&workflow, &[done(0, "a", "")]), Turn::Panicked("out of ideas".into()));
}

#[test]
fn time_and_chance_are_the_same_whenever_the_function_is_replayed() {
    let workflow = written(|context| async move {
        let before = context.now();
        act(&context, "a").await;
        ok(format!("{before:?} {:?} {} {}", context.now(), context.random(), context.uuid()))
    });
    let journal = [done(0, "a", "")];
    let Turn::Ended(End::Completed(first)) = replay(&workflow, &journal) else { panic!("it ends") };
    assert_eq!(replay(&workflow, &journal), Turn::Ended(End::Completed(first.clone())));
    let uuid = std::str::from_utf8(&first).unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
}

#[test]
fn ten_thousand_steps_are_replayed_in_well_under_a_second() {
    const STEPS: u32 = 10_000;
    let workflow = written(|context| async move {
        for _ in 0..STEPS {
            act(&context, "step").await;
        }
        ok("done")
    });
    let journal: Vec<_> = (0..STEPS).map(|step| done(step, "step", "x")).collect();
    let begun = std::time::Instant::now();
    assert_eq!(replay(&workflow, &journal), Turn::Ended(End::Completed("done".into())));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A function that is made up.
#[derive(Debug, Clone)]
enum Plan {
    Act(u8),
    Sleep,
    Signal(u8),
    Each(Vec<Plan>),
    All(Vec<Plan>),
    Race(Box<Plan>, Box<Plan>),
}

fn plan() -> impl Strategy<Value = Plan> {
    let leaf =
        prop_oneof![any::<u8>().prop_map(Plan::Act), Just(Plan::Sleep), (0..2u8).prop_map(Plan::Signal)];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Plan::Each),
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6),
                proptest::collection::vec(any::<u8>().prop_map(Plan::Act), 31..40)
            ]
            .prop_map(Plan::All),
            (inner.clone(), inner).prop_map(|(a, b)| Plan::Race(Box::new(a), Box::new(b))),
        ]
    })
}

type Log = Arc<Mutex<Vec<String>>>;

fn follow(context: Context, plan: Plan, log: Log) -> BoxFuture<'static, ()> {
    async move {
        let say = |what: String| log.lock().unwrap().push(what);
        match plan {
            Plan::Act(n) => {
                say(format!("{n} gave {:?} at {:?}", act(&context, &n.to_string()).await, context.now()))
            }
            Plan::Sleep => {
                context.sleep(Duration::from_secs(1)).await;
                say(format!("slept until {:?}", context.now()));
            }
            Plan::Signal(n) => say(format!("signal {n}: {:?}", context.signal(&n.to_string()).await)),
            Plan::Each(plans) => {
                for plan in plans {
                    follow(context.clone(), plan, Arc::clone(&log)).await;
                }
            }
            Plan::All(plans) => {
                join_all(plans.into_iter().map(|plan| follow(context.clone(), plan, Arc::clone(&log)))).await;
            }
            Plan::Race(a, b) => {
                let won = select(
                    follow(context.clone(), *a, Arc::clone(&log)),
                    follow(context.clone(), *b, Arc::clone(&log)),
                )
                .await;
                say(format!("{won:?} won"));
            }
        }
    }
    .boxed()
}

fn made_up(plan: Plan) -> (Written, Log) {
    let log = Log::default();
    let told = Arc::clone(&log);
    let workflow = written(move |context| {
        let (plan, log) = (plan.clone(), Arc::clone(&told));
        async move {
            follow(context, plan, log).await;
            ok("end")
        }
    });
    (workflow, log)
}

/// Answers whatever the function waits for in an order that chance decides, as the engine would; gives the journal and what the
/// function had said after each entry.
fn live(plan: Plan, mut chance: impl FnMut(usize) -> usize) -> (Vec<Entry>, Vec<Vec<String>>, Turn) {
    let (workflow, log) = made_up(plan);
    let mut function = begin(&workflow, &[]);
    let mut turn = function.turn();
    let (mut journal, mut said) = (Vec::new(), vec![log.lock().unwrap().clone()]);
    while turn == Turn::Waiting && journal.len() < 100 {
        let mut owed = function.context().state().machine.take_owed();
        let events: Vec<Event> = function
            .context()
            .state()
            .machine
            .waiting()
            .map(|(step, open)| match open.asked.kind {
                Kind::Sleep => Event::Slept { step, name: open.asked.name.clone() },
                _ => Event::Activity {
                    step,
                    name: open.asked.name.clone(),
                    attempts: 1,
                    outcome: Outcome::Success(Bytes::from(format!("answer {}", journal.len()))),
                },
            })
            .chain((0..2).map(|n| Event::Signal {
                name: n.to_string(),
                payload: Bytes::from(journal.len().to_string()),
            }))
            .collect();
        owed.push(events[chance(events.len())].clone());
        // Several entries may be written at once; all are noted before the first is delivered.
        let at = i64::try_from(journal.len()).unwrap() * 7;
        let entries: Vec<_> = owed.into_iter().map(|event| Entry { at, event }).collect();
        entries.iter().for_each(|entry| function.note(entry));
        for entry in entries {
            turn = function.deliver(entry.clone());
            journal.push(entry);
            said.push(log.lock().unwrap().clone());
        }
    }
    (journal, said, turn)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn live_is_replay(plan in plan(), seed in proptest::collection::vec(any::<u16>(), 1..50)) {
        let mut draws = seed.into_iter().cycle();
        let (journal, said, turn) = live(plan.clone(), |most| usize::from(draws.next().unwrap()) % most);
        prop_assert!(!matches!(turn, Turn::Blocked(_) | Turn::Panicked(_)), "{:?}", turn);
        // Wherever it is cut off, what comes back is what was there.
        for cut in 0..=journal.len() {
            let (workflow, log) = made_up(plan.clone());
            let mut function = begin(&workflow, &journal[..cut]);
            let mut last = function.turn();
            for entry in &journal[..cut] {
                if last == Turn::Waiting {
                    last = function.deliver(entry.clone());
                }
            }
            prop_assert!(!matches!(last, Turn::Blocked(_)), "{:?}", last);
            prop_assert_eq!(&*log.lock().unwrap(), &said[cut]);
            if cut == journal.len() {
                prop_assert_eq!(last, turn.clone());
            }
        }
    }
}
