//! What is done to relays, whatever tables they serve.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use posthaste_core::lifecycle::State;
use posthaste_core::{Message, MessageId};
use posthaste_servers::{PostgresServer, StopMode};
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use crate::tables::Tables;
use crate::world::World;

/// Where relays die.
pub const POINTS: [&str; 6] = [
    "before_claim",
    "after_claim",
    "before_publish",
    "after_publish",
    "before_settle",
    "after_settle",
];

/// For relays that are not killed. What is handed over before it ends was handed over and not just left, and a machine that
/// has much else to do does not make it end.
pub const LONG_LEASE: [(&str, &str); 1] = [("POSTHASTE_RELAY__LEASE", "60s")];

/// What a message has of them that kills whoever touches it.
pub const ATTEMPTS: usize = 4;

/// The messages of a hot key.
const HOT: usize = 4_950;

/// Keeps one relay running that dies at its failpoint now and then, until it has died `deaths` times.
async fn die_again_and_again(world: Arc<World>, failpoints: String, deaths: usize) {
    for _ in 0..deaths {
        let mut relay = world.start_relay(&[("FAILPOINTS", failpoints.as_str())]);
        relay.wait().await.unwrap();
        world.has_killed(1);
    }
}

/// Lets two relays die again and again at a failpoint under load. Nothing is lost, and the order is kept.
pub async fn survives_deaths_at(point: &str, world: &Arc<World>, deaths_each: usize) {
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    let failpoints = format!("{point}=10%return");
    let dying = [(); 2].map(|()| {
        let dying = die_again_and_again(Arc::clone(world), failpoints.clone(), deaths_each);
        tokio::spawn(dying)
    });
    for task in dying {
        timeout(Duration::from_mins(2), task)
            .await
            .unwrap_or_else(|_| panic!("no deaths at {point}"))
            .unwrap();
    }
    world.has_committed(50).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    let _survivor = world.start_relay(&[]);
    world.drained().await;
    world.assert_sound().await;
}

/// Kills three relays again and again under load. Nothing is lost, and the order is kept.
/// Gives back the relays that delivered the rest.
pub async fn survives_random_kills(
    world: &Arc<World>,
    kills_each: usize,
    life_millis: Range<u64>,
    events: usize,
) -> [Child; 2] {
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(6, &stop);
    let slots = [(); 3].map(|()| {
        let (world, life) = (Arc::clone(world), life_millis.clone());
        tokio::spawn(async move {
            for _ in 0..kills_each {
                let relay = world.start_relay(&[]);
                world
                    .live_for(Duration::from_millis(rand::random_range(life.clone())))
                    .await;
                world.kill(relay).await;
            }
        })
    });
    for slot in slots {
        slot.await.unwrap();
    }
    world.has_committed(events).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    let survivors = [world.start_relay(&[]), world.start_relay(&[])];
    world.drained().await;
    world.assert_sound().await;
    assert_eq!(world.kills.load(Ordering::Relaxed), 3 * kills_each);
    survivors
}

/// Crashes the database under load. Nothing is lost, the order is kept, and the relays say so once for each crash.
pub async fn survives_database_crashes(tables: Tables) {
    let server = Arc::new(PostgresServer::start(&std::env::temp_dir()).unwrap());
    let world = World::over_at(tables, server.url()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers = world.produce(4, &stop);
    let _relays = [world.start_relay(&[]), world.start_relay(&[])];
    for _ in 0..3 {
        sleep(Duration::from_millis(1_500)).await;
        let server = Arc::clone(&server);
        let restart = move || {
            server.stop(StopMode::Immediate).unwrap();
            server.start_again().unwrap();
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
        // Every answer that was under way may be lost with its connection, in both relays.
        world.has_killed(2);
    }
    world.has_committed(300).await;
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    world.drained().await;
    world.assert_sound().await;
    let log = world.log();
    assert!(log.contains("works again"), "the relays noticed nothing?\n{log}");
    assert!(
        log.matches("claiming failed").count() <= 3 * 2 * 2,
        "said more than once per outage:\n{log}"
    );
}

/// A message kills each relay that has it in its hands. It is given up after so many deaths, and all others are delivered,
/// before it in the tables and behind it, of its key too.
pub async fn survives_a_deadly_message(tables: Tables, deaths: RangeInclusive<usize>) {
    const BEFORE: i64 = 15;
    const ALL: i64 = 30;
    let world = World::over(tables).await;
    for n in 0..BEFORE {
        world.transact(&format!("k{n}"), n, true).await.unwrap();
    }
    let poison = Message::new("poison", "{}").key("k0");
    let poison_id = poison.id;
    let mut tx = world.pool.begin().await.unwrap();
    world.enqueue(&mut tx, vec![poison]).await.unwrap();
    tx.commit().await.unwrap();
    for n in BEFORE..ALL {
        world.transact(&format!("k{}", n - BEFORE), n, true).await.unwrap();
    }

    let attempts = ATTEMPTS.to_string();
    // Whoever supervises relays starts them again, each time into the same trap.
    let supervised = Arc::clone(&world);
    let supervisor = tokio::spawn(async move {
        let settings = [
            ("FAILPOINTS", "poison=return"),
            ("POSTHASTE_RELAY__RETRY__MAX_ATTEMPTS", attempts.as_str()),
        ];
        loop {
            supervised.start_relay(&settings).wait().await.unwrap();
            supervised.has_killed(1);
        }
    });
    world.drained().await;
    supervisor.abort();
    let died = world.kills.load(Ordering::Relaxed);
    assert!(deaths.contains(&died), "it killed {died} processes\n{}", world.log());
    let record = world.admin().show(poison_id).await.unwrap().unwrap();
    assert_eq!((record.state, record.attempts as usize), (State::Dead, ATTEMPTS));
    assert_eq!(world.dead().await, 1, "it died alone");
    world.assert_sound().await;
}

/// A backlog that is nearly all of one key.
pub struct HotKey {
    hot: Vec<MessageId>,
    pub cold: Vec<MessageId>,
}

impl HotKey {
    pub async fn enqueue(world: &World) -> Self {
        let message = |key: String| Message::new("orders", "{}").key(key);
        let hot: Vec<_> = (0..HOT).map(|_| message("hot".into())).collect();
        let cold: Vec<_> = (0..50).map(|n| message(format!("cold-{n}"))).collect();
        let ids = |messages: &[Message]| messages.iter().map(|message| message.id).collect();
        let ids = Self {
            hot: ids(&hot),
            cold: ids(&cold),
        };
        let mut tx = world.pool.begin().await.unwrap();
        world.enqueue(&mut tx, hot).await.unwrap();
        world.enqueue(&mut tx, cold).await.unwrap();
        tx.commit().await.unwrap();
        ids
    }

    /// Delivers it: the key in order, and those of the others that are given early.
    pub async fn starves_nobody(self, world: &World, early: &[MessageId]) {
        let _relays = [world.start_relay(&LONG_LEASE), world.start_relay(&LONG_LEASE)];
        world.drained().await;
        let deliveries = world.deliveries().await;
        let hot_order: Vec<_> = deliveries
            .iter()
            .filter(|id| !self.cold.contains(id))
            .copied()
            .collect();
        assert_eq!(hot_order, self.hot, "the hot key in order, each once");
        assert_eq!(
            deliveries.len(),
            self.hot.len() + self.cold.len(),
            "the others once, too"
        );
        let last = deliveries.iter().rposition(|id| early.contains(id));
        assert!(
            last.is_none_or(|last| last < HOT / 4),
            "the last of the others came at place {last:?}"
        );
    }
}

pub fn signal(relay: &Child, signal: Signal) {
    let id = i32::try_from(relay.id().expect("it runs")).unwrap();
    kill(Pid::from_raw(id), signal).unwrap();
}
