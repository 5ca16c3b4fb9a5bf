use super::*;

mod deaths;
mod gaps;
mod joins;
mod standing;

const ME: &str = "me";
const SETTLE: Duration = Duration::from_secs(1);

/// An observer with a service around it, on which everything goes as it should unless a test says otherwise.
struct World {
    observer: Observer,
    now: u64,
    revision: u64,
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn instance(name: &str) -> Instance {
    Instance::new(name)
}

fn shard(id: u16) -> ShardId {
    ShardId::new(crate::shard::GroupName::default(), id)
}

fn runner(instance: &str, state: State) -> Runner {
    let member = Member {
        instance: Instance::new(instance),
        weight: 100,
        groups: BTreeSet::new(),
        version: crate::shard::Version::new("1"),
        state,
        avoids: BTreeSet::new(),
    };
    Runner {
        member,
        address: format!("{}:7000", instance.split('#').next().unwrap()),
        admin: None,
        gateway: None,
        timing: Timing::default(),
        schema: None,
    }
}

impl World {
    /// A world in which the observer and these others are known, counted on, and have just renewed.
    fn with(others: &[&str]) -> Self {
        let observer = Observer::new(instance(ME), Timing::default(), SETTLE);
        let mut world = Self { observer, now: 100_000, revision: 0 };
        let runners =
            others.iter().map(|other| world.record(other, Some(runner(other, State::Ready)))).collect();
        world.apply(Event::Snapshot(Snapshot { runners, shards: Vec::new() }));
        world.renew_me();
        world.now += 1000;
        world.observer.tick(world.now());
        world.observer.take_changes();
        for other in others {
            world.renew(other);
        }
        world
    }

    fn now(&self) -> Moment {
        Moment::new(Duration::from_millis(self.now))
    }

    fn record(&mut self, lock: &str, holder: Option<Runner>) -> RunnerRecord {
        self.revision += 1;
        let lock = lock.split('#').next().unwrap();
        RunnerRecord { name: name(lock), holder, revision: Revision::new(self.revision.to_string()) }
    }

    fn apply(&mut self, event: Event) {
        self.observer.apply(event, self.now());
    }

    /// The observer's renewal succeeds and comes back through the watch.
    fn renew_me(&mut self) {
        let record = self.record(ME, Some(runner(ME, State::Ready)));
        let lock = Lock { name: name(ME), instance: instance(ME), revision: record.revision.clone() };
        self.observer.renewed(&lock, self.now(), self.now());
        self.apply(Event::Runner(record));
    }

    fn say(&mut self, other: &str, state: State) {
        let record = self.record(other, Some(runner(other, state)));
        self.apply(Event::Runner(record));
    }

    fn renew(&mut self, other: &str) {
        self.say(other, State::Ready);
    }

    fn hold(&mut self, id: u16, holder: Option<&str>) {
        self.revision += 1;
        let revision = Revision::new(self.revision.to_string());
        let holder = holder.map(Instance::new);
        self.apply(Event::Shard(ShardRecord {
            shard: shard(id),
            holder,
            epoch: Epoch::new(1),
            generation: 1,
            revision,
        }));
    }

    /// Lets time pass, with the observer's own renewals and without anybody else's.
    fn pass(&mut self, millis: u64) {
        let end = self.now + millis;
        while self.now < end {
            self.now = end.min(self.now + 500);
            self.renew_me();
        }
    }

    fn dead(&mut self) -> Vec<(String, Death)> {
        let deaths = self.observer.take_changes().deaths;
        deaths.into_iter().map(|(instance, death)| (instance.to_string(), death)).collect()
    }

    fn members(&self) -> Vec<(String, State)> {
        self.observer.members().into_iter().map(|m| (m.instance.to_string(), m.state)).collect()
    }

    fn names(&self) -> Vec<String> {
        self.members().into_iter().map(|(name, _)| name).collect()
    }
}
