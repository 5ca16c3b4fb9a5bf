//! The same error for the same cause, whether the owner is local or remote.

use std::time::Duration;

use cleat_runner::client::Runtime;
use cleat_runner::entity::{Answer, Caller, Error, Request, Want};
use cleat_runner::message::{EntityAddress, EntityType, Envelope, IdempotencyKey, Sequence};
use cleat_runner::prelude::*;
use futures::StreamExt;

use crate::nodes::{Runner, World, settled, until};
use crate::{envelope_for, id_of_type_on, within};

/// Has a method for each thing that can go wrong.
#[entity(name = "trouble", state = u32, mailbox_capacity = 1)]
#[derive(Clone, Default)]
struct Trouble {
    begun: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    open: std::sync::Arc<tokio::sync::Notify>,
}

#[entity_impl]
impl Trouble {
    #[rpc]
    pub async fn plain(&self) -> Result<u32, Never> {
        Ok(1)
    }

    #[rpc]
    pub async fn panics(&self) -> Result<u32, Never> {
        panic!("it is broken")
    }

    #[rpc]
    pub async fn says_no(&self) -> Result<u32, String> {
        Err("no".to_owned())
    }

    #[rpc]
    #[protected]
    pub async fn protected(&self) -> Result<(), Never> {
        Ok(())
    }

    #[rpc]
    #[private]
    async fn private(&self) -> Result<(), Never> {
        Ok(())
    }

    #[rpc(persisted)]
    pub async fn keep(&self, number: u32) -> Result<u32, Never> {
        Ok(number)
    }

    #[rpc(persisted)]
    pub async fn rejects(&self, number: u32) -> Result<u32, String> {
        Err(format!("not {number}"))
    }

    /// Blocks the instance until the gate is open.
    #[rpc(persisted)]
    pub async fn block(&self, total: &mut u32) -> Result<u32, Never> {
        self.begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.open.notified().await;
        Ok(*total)
    }

    #[rpc(stream)]
    pub fn items(&self) -> impl Stream<Item = Result<u32, Never>> {
        futures::stream::iter((0..3).map(Ok))
    }
}

fn trouble() -> EntityType {
    EntityType::new("trouble").unwrap()
}

/// What a runner says to a request whose owner is local or remote, as text.
async fn asked(runner: &Runner, request: Request) -> String {
    let router = runner.node.router();
    let answer: Answer = if request.want == Want::Stream {
        match within(router.stream(request)).await {
            Ok(mut parts) => match within(parts.next()).await {
                Some(Err(error)) => Err(error),
                part => return format!("{part:?}"),
            },
            Err(error) => Err(error),
        }
    } else {
        within(router.request(request)).await
    };
    format!("{answer:?}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_the_same_from_a_local_and_from_a_remote_owner() {
    let world = World::new().await;
    let quick = |options: &mut cleat_runner::cluster::Options| {
        options.entities.registration = Duration::from_millis(200);
    };
    let (local, remote) = (world.start_with("a", quick).await, world.start_with("b", quick).await);
    let entity = Trouble::default();
    for runner in [&local, &remote] {
        entity.clone().register(&runner.node).unwrap();
    }
    settled(&[&local, &remote]).await;
    let id = id_of_type_on(&local, &trouble());
    let address = EntityAddress::new("trouble", &id).unwrap();
    let to = |method: &str| envelope_for(&local, address.clone(), method, &7_u32);
    let keyed = |envelope: Envelope, key: &str| {
        let key = IdempotencyKey::new(&envelope.address, &envelope.method, key.as_bytes());
        Envelope { key: Some(key), ..envelope }
    };
    let plain = |envelope: Envelope| Request::new(envelope);
    let unknown_type = EntityAddress::new("truoble", &id).unwrap();
    within(local.node.send(keyed(to("keep"), "taken"))).await.unwrap();
    let reused = envelope_for(&local, address.clone(), "keep", &8_u32);

    let causes: Vec<(&str, Request)> = vec![
        ("UnknownType", plain(Envelope { address: unknown_type, ..to("plain") })),
        ("UnknownMethod", plain(to("plian"))),
        ("NotPermitted", plain(to("protected"))),
        ("NotPermitted", plain(to("private"))),
        ("NotPersisted", plain(keyed(to("plain"), "k"))),
        ("NotPersisted", plain(Envelope { deliver_at: Some(std::time::SystemTime::now()), ..to("plain") })),
        ("Streams", plain(to("items"))),
        ("NotStreaming", Request { want: Want::Stream, ..plain(to("plain")) }),
        ("UnknownMethod", Request { want: Want::Stream, ..plain(to("plian")) }),
        ("KeyReused", plain(keyed(reused.clone(), "taken"))),
        ("KeyReused", plain(keyed(reused, "taken")).one_way()),
        ("UnknownMethod", plain(to("plian")).one_way()),
        ("NotPermitted", plain(to("private")).one_way()),
        ("panicked", plain(to("panics"))),
        ("no", plain(to("says_no"))),
        ("not 7", Request { resent: true, ..plain(to("rejects")) }),
    ];
    for (what, request) in causes {
        let here = asked(&local, request.clone()).await;
        let there = asked(&remote, request).await;
        assert!(here.contains(what), "{what}: {here}");
        assert_eq!(here, there);
    }

    // A mailbox that is full rejects users.
    let blocked: Vec<_> = (0..3)
        .map(|_| {
            let (router, request) = (local.node.router(), plain(to("block")));
            tokio::spawn(async move { router.request(request).await })
        })
        .collect();
    until("it runs", || entity.begun.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
    let waiting = || local.node.host().work().values().map(|work| work.waiting).sum::<usize>();
    until("the mailbox is full", || waiting() > 0).await;
    let request = Request { caller: Caller::User, ..plain(to("plain")) };
    let here = asked(&local, request.clone()).await;
    assert!(here.contains("MailboxFull"), "{here}");
    assert_eq!(here, asked(&remote, request).await);
    let open = entity.open.clone();
    let opening = tokio::spawn(async move {
        loop {
            open.notify_one();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    for blocked in blocked {
        within(blocked).await.unwrap().unwrap();
    }
    opening.abort();

    // What is asked about a request by its id.
    let request = within(local.node.notify(to("keep"))).await.unwrap();
    let unknown = cleat_runner::message::RequestId { id: local.node.next_id().unwrap(), ..request };
    let join = |runner: &Runner| {
        let (node, unknown) = (runner.node.clone(), unknown.clone());
        async move { format!("{:?}", node.await_reply(&unknown).await) }
    };
    let (here, there) = (within(join(&local)).await, within(join(&remote)).await);
    assert!(here.contains("NoSuchRequest"), "{here}");
    assert_eq!(here, there);
    let read = |runner: &Runner| {
        let (router, unknown) = (runner.node.router(), unknown.clone());
        async move {
            match router.replies(&unknown, None::<Sequence>).await {
                Ok(mut parts) => format!("{:?}", parts.next().await),
                Err(error) => format!("{:?}", Some(Err::<(), _>(error))),
            }
        }
    };
    let (here, there) = (within(read(&local)).await, within(read(&remote)).await);
    assert!(here.contains("NoSuchRequest"), "{here}");
    assert_eq!(here, there);
    local.node.shutdown().await;
    remote.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_that_a_remote_runner_rejects_is_not_acknowledged() {
    let world = World::new().await;
    let (a, b) = (world.start("a").await, world.start("b").await);
    for runner in [&a, &b] {
        Trouble::default().register(&runner.node).unwrap();
    }
    settled(&[&a, &b]).await;
    let id = id_of_type_on(&b, &trouble());
    let address = EntityAddress::new("trouble", &id).unwrap();
    let envelope = envelope_for(&a, address, "private", &());
    for runner in [&a, &b] {
        let error = within(runner.node.notify(envelope.clone())).await.unwrap_err();
        assert!(matches!(error, Error::NotPermitted { .. }), "{error:?}");
    }
    a.node.shutdown().await;
    b.node.shutdown().await;
}
