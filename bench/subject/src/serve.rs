//! The life of a subject: it is asked, and answers.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::mpsc;

use crate::protocol::{Answer, Command, Load, Method, Outcome, Place, Touch};
use crate::watch::Watching;
use crate::{Subject, cpu, load, nap};

/// Answers commands until the bench says stop or is gone.
///
/// # Errors
/// When standard input or output break. What a command cannot do is answered.
pub async fn serve<S: Subject>() -> Result<()> {
    let (sender, mut lines) = mpsc::unbounded_channel();
    // A thread, because a runtime does not end before a read of the standard input does.
    std::thread::spawn(move || std::io::stdin().lines().try_for_each(|line| sender.send(line)));
    let mut session = Session::<S> { node: None, watching: None };
    while let Some(line) = lines.recv().await {
        let line = line?;
        let command = serde_json::from_str(&line).with_context(|| format!("no command: {line}"))?;
        let last = matches!(command, Command::Stop);
        let answer = match session.execute(command).await {
            Ok(answer) => answer,
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", serde_json::to_string(&answer)?)?;
        output.flush()?;
        if last {
            break;
        }
    }
    Ok(())
}

/// Numbers for calls. Peers take calls with equal content for one, so each process begins somewhere else.
pub(crate) fn next_number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(u64::from(std::process::id()) << 40));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The names of the first entities that live where they should.
pub(crate) fn choose<S: Subject>(
    node: &S,
    method: Method,
    place: Place,
    count: usize,
) -> Result<Vec<String>> {
    let fits = |name: &String| is_at(node, method, place, name);
    // In a cluster of two every second one fits; a hundred times as many is far more than enough.
    let found: Vec<String> = (0..count * 100).map(name).filter(fits).take(count).collect();
    ensure!(found.len() == count, "only {} of {count} entities are {place:?}", found.len());
    Ok(found)
}

fn is_at<S: Subject>(node: &S, method: Method, place: Place, name: &str) -> bool {
    match place {
        Place::Local => node.is_local(method, name),
        Place::Remote => !node.is_local(method, name),
        Place::Anywhere => true,
    }
}

fn name(number: usize) -> String {
    format!("entity-{number}")
}

struct Session<S> {
    node: Option<Arc<S>>,
    watching: Option<Watching>,
}

impl<S: Subject> Session<S> {
    async fn execute(&mut self, command: Command) -> Result<Answer> {
        if let Command::Start(start) = command {
            self.node = Some(S::start(start).await?);
            return Ok(Answer::Done);
        }
        let node = self.node.as_ref().context("it was not started")?;
        match command {
            Command::Start(_) => bail!("it was started before"),
            Command::Shards => return Ok(Answer::Shards(node.shards().await)),
            Command::Load(load) => return Ok(Answer::Outcome(run(node, load).await?)),
            Command::Touch(touch) => touch_each(node, touch).await?,
            Command::Watch(watch) => self.watching = Some(Watching::begin(node, watch).await?),
            Command::Mark => self.watching()?.mark(),
            Command::Answered { seconds } => {
                let within = Duration::from_secs_f64(seconds);
                return Ok(Answer::Answered(self.watching()?.answered(within).await));
            }
            Command::Unwatch => {
                let watching = self.watching.take().context("nothing is watched")?;
                return Ok(Answer::Watched(watching.end().await?));
            }
            Command::Sleep { workflows, seconds } => {
                let time = Duration::from_secs_f64(seconds);
                return Ok(Answer::Slept(nap::sleep(node, workflows, time).await?));
            }
            Command::Wait { workflows, wait } => nap::wait(node, workflows, wait).await?,
            Command::Stop => node.stop().await?,
        }
        Ok(Answer::Done)
    }

    fn watching(&mut self) -> Result<&mut Watching> {
        self.watching.as_mut().context("nothing is watched")
    }
}

async fn run<S: Subject>(node: &Arc<S>, load: Load) -> Result<Outcome> {
    let entities = Arc::new(choose(node.as_ref(), load.method, load.place, load.entities)?);
    let mut times = Vec::new();
    let used = || -> Result<(f64, f64)> {
        let runners = load.runners.iter().map(|pid| cpu::of(*pid)).sum::<Result<f64>>()?;
        Ok((runners, cpu::of_family(load.database)?))
    };
    let method = load.method;
    let caller = |number: usize| {
        let (node, entities) = (Arc::clone(node), Arc::clone(&entities));
        let mut dice = Dice::new(number);
        move || {
            let (node, entities) = (Arc::clone(&node), Arc::clone(&entities));
            let entity = dice.below(entities.len());
            async move {
                node.call(method, &entities[entity], next_number()).await?;
                Ok(())
            }
        }
    };
    let time = Duration::from_secs_f64(load.seconds);
    let outcome = load::run(load.clients, time, caller, || times.push(used())).await?;
    let moved = entities.iter().filter(|name| !is_at(node.as_ref(), load.method, load.place, name)).count();
    ensure!(
        moved == 0,
        "{moved} of {} entities were not {:?} any more at the end",
        load.entities,
        load.place
    );
    let mut times = times.into_iter();
    let (begun, ended) = (times.next().context("no begin")??, times.next().context("no end")??);
    let calls = (outcome.per_second * outcome.measured.as_secs_f64()).max(1.0);
    Ok(Outcome {
        per_second: outcome.per_second,
        p50: outcome.milliseconds(50.0),
        p99: outcome.milliseconds(99.0),
        p999: outcome.milliseconds(99.9),
        errors: outcome.errors,
        hung: outcome.hung,
        first_error: outcome.first_error,
        runner_micros: (ended.0 - begun.0) * 1e6 / calls,
        database_micros: (ended.1 - begun.1) * 1e6 / calls,
    })
}

async fn touch_each<S: Subject>(node: &Arc<S>, touch: Touch) -> Result<()> {
    let next = Arc::new(AtomicU64::new(u64::try_from(touch.first)?));
    let end = u64::try_from(touch.first + touch.entities)?;
    let clients: Vec<_> = (0..touch.clients)
        .map(|_| {
            let (node, next) = (Arc::clone(node), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return Ok(());
                    }
                    node.call(touch.method, &name(usize::try_from(number)?), next_number()).await?;
                }
            })
        })
        .collect();
    for client in clients {
        let ended: Result<()> = client.await?;
        ended?;
    }
    Ok(())
}

/// Even enough for choosing entities, and cheap.
struct Dice(u64);

impl Dice {
    fn new(seed: usize) -> Self {
        Self((u64::try_from(seed).unwrap_or_default() + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 1).unwrap_or_default() % bound
    }
}
