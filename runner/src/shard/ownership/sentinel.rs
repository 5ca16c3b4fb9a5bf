//! What connections to peers prove about their lives.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::lease::{Clock, Moment, Observer};
use crate::shard::Instance;
use crate::transport::{Address, Health, Peers};

/// What the connection to an address has shown.
#[derive(Debug)]
pub(super) struct Sign {
    address: Address,
    health: Health,
    /// The attempt that showed it began then or later.
    begun: Moment,
}

/// Watches the connections to the living.
pub(super) struct Sentinels {
    peers: Option<Peers>,
    clock: Arc<dyn Clock>,
    signs: mpsc::UnboundedSender<Sign>,
    posts: HashMap<Address, AbortOnDropHandle<()>>,
    living: HashMap<Instance, Address>,
}

impl Sentinels {
    pub(super) fn new(peers: Option<Peers>, clock: Arc<dyn Clock>) -> (Self, mpsc::UnboundedReceiver<Sign>) {
        let (signs, received) = mpsc::unbounded_channel();
        (Self { peers, clock, signs, posts: HashMap::new(), living: HashMap::new() }, received)
    }

    /// Watches the connections to exactly these.
    pub(super) fn watch(&mut self, living: HashMap<Instance, Address>) {
        let Some(peers) = &self.peers else { return };
        let mut before = std::mem::take(&mut self.posts);
        for address in living.values() {
            let kept = before.remove(address).filter(|post| !post.is_finished());
            let post = kept.unwrap_or_else(|| {
                let stand =
                    stand(peers.clone(), address.clone(), Arc::clone(&self.clock), self.signs.clone());
                AbortOnDropHandle::new(tokio::spawn(stand))
            });
            self.posts.insert(address.clone(), post);
        }
        self.living = living;
    }

    /// Ends the connection to somebody who is dead: whoever waits for an answer learns it now. One that has said goodbye answers what it
    /// still has, and ends the connection itself; it is forgotten a while later.
    pub(super) fn bury(&mut self, instance: &Instance, goodbye: bool) {
        let (Some(peers), Some(address)) = (&self.peers, self.living.remove(instance)) else { return };
        self.posts.remove(&address);
        if !goodbye {
            peers.forget(&address, Some(instance));
            return;
        }
        let (peers, instance) = (peers.clone(), instance.clone());
        tokio::spawn(async move {
            tokio::time::sleep(GOODBYE).await;
            peers.forget(&address, Some(&instance));
        });
    }
}

/// How long somebody who has said goodbye may go on answering.
const GOODBYE: Duration = Duration::from_secs(5);

/// While connections are refused, another attempt has always been made in the time that this is.
///
/// A renewal that was sent before a crash can be seen after the first refusal and makes it void; so refusals are told again for as
/// long as they last. Should the guess be wrong, no harm is done: whose renewal is overdue has no standing any more.
const ATTEMPTS: Duration = Duration::from_secs(3);

/// How often a refusal that lasts is told again.
const REMINDER: Duration = Duration::from_millis(500);

/// Follows one connection until it is closed for good.
async fn stand(peers: Peers, address: Address, clock: Arc<dyn Clock>, signs: mpsc::UnboundedSender<Sign>) {
    let mut health = peers.health(&address);
    // An attempt that ends in another state began after the state before was seen.
    let mut seen = clock.now();
    loop {
        let (now, current) = (clock.now(), health.borrow_and_update().clone());
        let begun = match &current {
            // How long ago it began is known by another clock; the distance is the same.
            Health::Refused { since } => {
                Moment::new(now.since_origin().saturating_sub(since.elapsed().min(ATTEMPTS)))
            }
            _ => seen,
        };
        seen = now;
        let closed = current == Health::Closed;
        let refused = matches!(current, Health::Refused { .. });
        let sent = signs.send(Sign { address: address.clone(), health: current, begun });
        if closed || sent.is_err() {
            return;
        }
        let patience = if refused { REMINDER } else { Duration::MAX };
        if let Ok(Err(_)) = timeout(patience, health.changed()).await {
            return;
        }
    }
}

impl Sign {
    /// Tells the observer. Only an answer and a refusal prove anything.
    pub(super) fn tell(&self, observer: &mut Observer, now: Moment) {
        match &self.health {
            Health::Connected { instance } => {
                observer.answered(self.address.as_str(), instance, self.begun, now);
            }
            Health::Refused { .. } => {
                let here: Vec<Instance> = observer
                    .members()
                    .into_iter()
                    .map(|member| member.instance)
                    .filter(|instance| {
                        observer.find(instance).is_some_and(|runner| runner.address == self.address.as_str())
                    })
                    .collect();
                for instance in here {
                    observer.refused(&instance, self.begun, now);
                }
            }
            Health::Connecting | Health::Lost { .. } | Health::Denied { .. } | Health::Closed => {}
        }
    }
}
