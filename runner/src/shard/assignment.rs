//! Which runner each shard belongs on.
//!
//! A pure function of what the Leases say, so that runners which see the same Leases agree without talking. It starts
//! from who holds what: a shard stays where it is unless its holder is gone, drains, or has more than its share. What has
//! to move, or is free, goes where weighted rendezvous hashing puts it among the runners that have room.
//!
//! # Guarantees
//! - The answer depends on nothing but the arguments, and not on their order.
//! - If any ready runner serves a group, each of its shards has an owner.
//! - Each runner has its weighted fair share, rounded down or up, and no move was avoidable on the way there.
//! - **Carrying it out does not change it**: with any of its moves done, or half done (released and not yet claimed), the
//!   answer is the same. Without that, runners that see claims at different times would chase each other.
//! - **While two versions run**, a shard whose holder is ready stays, whatever the shares; a shard that is free or whose
//!   holder drains goes to a runner of the newest ready version. So in a rolling update each shard moves once.
//!
//! # Caveats
//! [`Member::avoids`] is stronger than the shares: a runner may get one above its share if nobody else may have a shard.

use std::collections::{BTreeMap, HashMap};

use super::rendezvous::{Key, Site};
use super::{GroupName, Instance, Member, ShardId, ShardMap, State};

/// Who holds which shard now. Shards that nobody living holds are not in it, or name somebody who is no member.
pub type Holders = HashMap<ShardId, Instance>;

/// Which runner each shard belongs on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignment {
    groups: BTreeMap<GroupName, Vec<Option<Instance>>>,
}

impl Assignment {
    /// Decides, from the map of each group, the living runners (each instance once) and who holds what.
    pub fn new(maps: &[ShardMap], members: &[Member], holders: &Holders) -> Self {
        let mut members: Vec<&Member> = members.iter().collect();
        members.sort_by(|a, b| a.instance.cmp(&b.instance));
        members.dedup_by(|a, b| a.instance == b.instance);
        let decide = |map: &ShardMap| (map.group().clone(), Group::new(map, &members, holders).decide());
        Self { groups: maps.iter().map(decide).collect() }
    }

    /// The runner that a shard belongs on; none if no runner could have it.
    pub fn owner(&self, shard: &ShardId) -> Option<&Instance> {
        self.groups.get(&shard.group)?.get(usize::from(shard.id))?.as_ref()
    }

    /// Every shard and the runner that it belongs on, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, Option<&Instance>)> + '_ {
        self.groups.iter().flat_map(|(group, owners)| {
            (0..=u16::MAX).zip(owners).map(|(id, owner)| (ShardId::new(group.clone(), id), owner.as_ref()))
        })
    }

    /// The shards that belong on a runner, in order.
    pub fn shards_of<'a>(&'a self, instance: &'a Instance) -> impl Iterator<Item = ShardId> + 'a {
        self.iter().filter_map(move |(shard, owner)| (owner == Some(instance)).then_some(shard))
    }
}

/// How many shards a runner should have: `low` at least, and one more if it is `uneven`.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    low: usize,
    uneven: bool,
}

impl Share {
    fn high(self) -> usize {
        self.low + usize::from(self.uneven)
    }
}

/// A runner that may keep shards.
struct Seat<'a> {
    member: &'a Member,
    site: Site,
    weight: u64,
    /// What it keeps, then what it keeps and gets.
    load: usize,
    /// Whether free shards may go to it.
    takes: bool,
    share: Share,
}

/// The decision for one group.
struct Group<'a> {
    map: &'a ShardMap,
    seats: Vec<Seat<'a>>,
    keys: Vec<Key>,
    /// The seat of each shard, by its number.
    places: Vec<Option<usize>>,
    /// Who holds each shard though it may not keep it: it does so for as long as nobody can take over.
    last: Vec<Option<Instance>>,
    /// Whether runners of several versions are ready.
    mixed: bool,
    /// How many shards are left over when every seat that takes has the lower end of its share.
    spare: usize,
}

impl<'a> Group<'a> {
    fn new(map: &'a ShardMap, members: &[&'a Member], holders: &Holders) -> Self {
        let serving = || members.iter().copied().filter(|member| member.groups.contains(map.group()));
        let ready = || serving().filter(|member| member.state == State::Ready);
        let weighted = ready().any(|member| member.weight > 0);
        let eligible = || ready().filter(|member| member.weight > 0 || !weighted);
        let newest = eligible().map(|member| &member.version).max();
        let mixed = eligible().any(|member| Some(&member.version) != newest);
        let mut seats: Vec<_> = eligible()
            .map(|member| Seat {
                member,
                site: Site::new(&member.instance, member.weight),
                weight: u64::from(member.weight.max(1)),
                load: 0,
                takes: Some(&member.version) == newest,
                share: Share::default(),
            })
            .collect();

        let numbers: HashMap<&Instance, usize> =
            seats.iter().enumerate().map(|(seat, s)| (&s.member.instance, seat)).collect();
        let alone = seats.len() == 1;
        let holder = |shard: &ShardId| holders.get(shard);
        let mut places = Vec::with_capacity(usize::from(map.shards()));
        let mut last = Vec::new();
        for shard in map.ids() {
            let place = holder(&shard).and_then(|instance| numbers.get(instance).copied());
            let place = place.filter(|seat| alone || !seats[*seat].member.avoids.contains(&shard));
            if seats.is_empty() {
                let holds = |member: &&&Member| Some(&member.instance) == holder(&shard);
                last.push(serving().find(|member| holds(&member)).map(|member| member.instance.clone()));
            }
            places.push(place);
        }
        for seat in places.iter().flatten() {
            seats[*seat].load += 1;
        }
        let keys = (0..map.shards()).map(|id| Key::of(map.group(), id)).collect();
        Self { map, seats, keys, places, last, mixed, spare: 0 }
    }

    fn decide(mut self) -> Vec<Option<Instance>> {
        if self.seats.is_empty() {
            return self.last;
        }
        self.share_out();
        if !self.mixed {
            self.shed();
        }
        self.place();
        let seats = &self.seats;
        self.places.iter().map(|place| place.map(|seat| seats[seat].member.instance.clone())).collect()
    }

    /// Works out the share of each seat that takes. What those hold who only keep is not to be shared. This does not
    /// depend on how far the moves are, because shards move only to seats that take.
    fn share_out(&mut self) {
        let kept: usize = self.seats.iter().filter(|seat| !seat.takes).map(|seat| seat.load).sum();
        let total = self.places.len() - kept;
        let weights: u64 = self.seats.iter().filter(|seat| seat.takes).map(|seat| seat.weight).sum();
        self.spare = total;
        for seat in self.seats.iter_mut().filter(|seat| seat.takes) {
            // At most 65535 shards times a weight of at most 65535.
            let product = u64::try_from(total).unwrap_or(u64::MAX).saturating_mul(seat.weight);
            let low = usize::try_from(product / weights).unwrap_or(usize::MAX);
            seat.share = Share { low, uneven: product % weights > 0 };
            self.spare = self.spare.saturating_sub(low);
        }
    }

    /// Takes from each what is above its share: those of its shards that it wins least clearly.
    fn shed(&mut self) {
        let mut excess: Vec<usize> =
            self.seats.iter().map(|seat| seat.load.saturating_sub(seat.share.high())).collect();
        // Some keep the upper end of their share, but not more than there are shards to spare. Who steps back is
        // decided by the runners alone, so that those who did already are those who would be chosen again.
        let mut upper: Vec<usize> =
            (0..self.seats.len()).filter(|i| self.seats[*i].load > self.seats[*i].share.low).collect();
        upper.retain(|i| self.seats[*i].share.uneven);
        upper.sort_by_key(|i| (self.seats[*i].site.seed(), *i));
        let back = upper.len().saturating_sub(self.spare);
        for seat in upper.into_iter().take(back) {
            excess[seat] += 1;
        }

        let mut held: Vec<Vec<usize>> = vec![Vec::new(); self.seats.len()];
        for (shard, place) in self.places.iter().enumerate() {
            if let Some(seat) = place
                && excess[*seat] > 0
            {
                held[*seat].push(shard);
            }
        }
        for (seat, mut shards) in held.into_iter().enumerate() {
            let site = self.seats[seat].site;
            shards.sort_by_key(|shard| std::cmp::Reverse((site.cost(self.keys[*shard]), *shard)));
            for shard in shards.into_iter().take(excess[seat]) {
                self.places[shard] = None;
                self.seats[seat].load -= 1;
            }
        }
    }

    /// Gives each shard that has no place to the best runner that has room for it.
    ///
    /// Room only shrinks on the way, and a shard's place in the end had room all the time. That is why an answer that is
    /// half carried out leads to itself again.
    fn place(&mut self) {
        let above = |seat: &Seat<'_>| seat.load.saturating_sub(seat.share.low);
        let mut over: usize = self.seats.iter().filter(|seat| seat.takes).map(above).sum();
        let picky = self.seats.iter().any(|seat| !seat.member.avoids.is_empty());
        for number in 0..self.places.len() {
            if self.places[number].is_some() {
                continue;
            }
            let spare = over < self.spare;
            let room =
                |seat: &Seat<'_>| seat.load < seat.share.low || (spare && seat.load < seat.share.high());
            let found = if picky {
                let id = u16::try_from(number).unwrap_or(u16::MAX);
                let shard = ShardId::new(self.map.group().clone(), id);
                let wants = |seat: &Seat<'_>| !seat.member.avoids.contains(&shard);
                self.best(number, |seat| wants(seat) && room(seat))
                    .or_else(|| self.best(number, wants))
                    .or_else(|| self.best(number, room))
            } else {
                self.best(number, room)
            };
            let found = found.or_else(|| self.best(number, |_| true));
            if let Some(seat) = found {
                over += usize::from(self.seats[seat].load >= self.seats[seat].share.low);
                self.seats[seat].load += 1;
            }
            self.places[number] = found;
        }
    }

    /// The seat that a shard costs least, of those that take and that may have it.
    fn best(&self, number: usize, may: impl Fn(&Seat<'_>) -> bool) -> Option<usize> {
        let key = self.keys[number];
        let seats = self.seats.iter().enumerate().filter(|(_, seat)| seat.takes && may(seat));
        seats.map(|(number, seat)| (seat.site.cost(key), number)).min().map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests;
