//! Whatever happens, in whatever order, the in-memory outbox keeps its promises.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::{LeaseToken, Settlement, State, Verdict};
use posthaste_core::store::{
    ClaimRequest, ClaimedMessage, DeadHead, Filter, KeyOrdering, ProducerStore, Scope, WorkerId,
};
use posthaste_core::{AdminStore, Message, MessageId, OutboxOptions, RelayStore};
use posthaste_testkit::MemoryStore;
use proptest::prelude::*;

const MAX_ATTEMPTS: u32 = 3;
const LEASE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
enum Step {
    Enqueue {
        key: Option<u8>,
        delay: u16,
    },
    Claim {
        limit: u32,
    },
    /// Settles one message of the oldest claim that is still open.
    Settle(Fate),
    /// The worker of the newest open claim vanishes.
    Vanish,
    Wait(u16),
    Sweep,
    Replay,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Delivered,
    Retry(u16),
    Dead,
    Released,
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        4 => Just(Fate::Delivered),
        2 => (0_u16..100).prop_map(Fate::Retry),
        1 => Just(Fate::Dead),
        1 => Just(Fate::Released),
    ];
    prop_oneof![
        4 => (proptest::option::weighted(0.8, 0_u8..3), prop_oneof![4 => Just(0), 1 => 1_u16..100])
            .prop_map(|(key, delay)| Step::Enqueue { key, delay }),
        3 => (1_u32..5).prop_map(|limit| Step::Claim { limit }),
        6 => fate.prop_map(Step::Settle),
        1 => Just(Step::Vanish),
        2 => (0_u16..60).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
        1 => Just(Step::Replay),
    ]
}

/// A worker's view of what it claimed.
struct Open {
    token: LeaseToken,
    until: DateTime<Utc>,
    messages: Vec<ClaimedMessage>,
    /// Keys in which a message failed; the rest of them is given back.
    stopped: HashSet<String>,
}

#[derive(Default)]
struct World {
    enqueued: Vec<Message>,
    open: Vec<Open>,
    /// First deliveries, in order.
    delivered: Vec<MessageId>,
    /// Messages that were dead at some time: followers may have passed them.
    died: HashSet<MessageId>,
}

async fn claim(store: &MemoryStore, limit: u32) -> Open {
    let token = LeaseToken::new();
    let request = ClaimRequest {
        worker: WorkerId::new(),
        token,
        limit,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: LEASE,
        max_attempts: MAX_ATTEMPTS,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    };
    let claim = store.claim(&request).await.unwrap();
    Open {
        token,
        until: store.clock().now() + LEASE,
        messages: claim.messages,
        stopped: HashSet::new(),
    }
}

impl World {
    async fn step(&mut self, store: &MemoryStore, step: Step) {
        match step {
            Step::Enqueue { key, delay } => {
                let mut message = Message::new("t", "x");
                message.ordering_key = key.map(|key| key.to_string().into());
                if delay > 0 {
                    message.not_before = Some(store.clock().now() + Duration::from_secs(delay.into()));
                }
                self.enqueued.push(message.clone());
                let options = OutboxOptions::default();
                store.enqueue_and_commit(&options, vec![message]).await.unwrap();
            }
            Step::Claim { limit } => {
                let open = claim(store, limit).await;
                self.open.push(open);
            }
            Step::Settle(fate) => self.settle(store, fate).await,
            Step::Vanish => self.open.truncate(self.open.len().saturating_sub(1)),
            Step::Wait(seconds) => store.clock().advance(Duration::from_secs(seconds.into())),
            Step::Sweep => drop(store.sweep(&Scope::default(), MAX_ATTEMPTS).await.unwrap()),
            Step::Replay => drop(store.replay(&Filter::default(), 1).await.unwrap()),
        }
        self.check(store).await;
    }

    async fn settle(&mut self, store: &MemoryStore, fate: Fate) {
        // A worker hands nothing to the broker once its lease is over: another one may have the head of the key by then.
        let now = store.clock().now();
        self.open.retain(|open| !open.messages.is_empty() && now <= open.until);
        let Some(open) = self.open.first_mut() else { return };
        let claimed = open.messages.remove(0);
        let id = claimed.message.id;
        let key = claimed.message.ordering_key;
        let stopped = key.as_ref().is_some_and(|key| open.stopped.contains(key));
        let verdict = match fate {
            _ if stopped => Verdict::Released,
            Fate::Delivered => Verdict::Delivered,
            Fate::Released => Verdict::Released,
            Fate::Dead => Verdict::Dead { error: "dead".into() },
            Fate::Retry(_) if claimed.attempts >= MAX_ATTEMPTS => Verdict::Dead { error: "last".into() },
            Fate::Retry(seconds) => Verdict::Retry {
                delay: Duration::from_secs(seconds.into()),
                error: "retry".into(),
            },
        };
        if matches!(verdict, Verdict::Retry { .. } | Verdict::Released) {
            open.stopped.extend(key);
        }
        let delivered = verdict == Verdict::Delivered;
        let settlement = Settlement {
            id,
            token: open.token,
            verdict,
            version: None,
            without_letter: false,
        };
        assert_eq!(
            store.settle(&[settlement]).await.unwrap().lost,
            [],
            "a live lease is not lost"
        );
        if delivered {
            assert!(!self.delivered.contains(&id), "a delivered row was handed out again");
            self.delivered.push(id);
        }
    }

    async fn check(&mut self, store: &MemoryStore) {
        let rows = store.list(&Filter::default(), None, 10_000).await.unwrap();
        assert_eq!(rows.len(), self.enqueued.len(), "no row vanishes");
        for row in rows {
            let leased = row.locked_until.is_some() && row.locked_by.is_some();
            assert_eq!(leased, row.state == State::Processing, "{row:?}");
            assert_eq!(row.delivered_at.is_some(), row.state == State::Delivered, "{row:?}");
            assert_eq!(row.state == State::Delivered, self.delivered.contains(&row.message.id));
            assert!(row.attempts <= MAX_ATTEMPTS, "{row:?}");
            if row.state == State::Dead {
                self.died.insert(row.message.id);
            }
        }
    }

    /// Works until nothing is left, as patient workers would.
    async fn drain(&mut self, store: &MemoryStore) {
        self.open.clear();
        for _ in 0..1_000 {
            store.clock().advance(Duration::from_secs(200));
            let open = claim(store, 3).await;
            for claimed in &open.messages {
                let settlement = Settlement::delivered(claimed.message.id, open.token);
                assert_eq!(store.settle(&[settlement]).await.unwrap().lost, []);
                self.delivered.push(claimed.message.id);
            }
            let stats = store.stats("default").await.unwrap();
            if stats.pending + stats.processing == 0 {
                break;
            }
        }
        self.check(store).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Proves B8, B11 and pitfalls 4, 5, 8.
    #[test]
    fn every_message_ends_delivered_once_or_dead_and_no_key_is_reordered(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = MemoryStore::new();
            let mut world = World::default();
            for step in steps {
                world.step(&store, step).await;
            }
            world.drain(&store).await;

            let mut left: HashMap<MessageId, State> = HashMap::new();
            for row in store.list(&Filter::default(), None, 10_000).await.unwrap() {
                left.insert(row.message.id, row.state);
            }
            let terminal = |state: &State| matches!(state, State::Delivered | State::Dead);
            assert!(left.values().all(terminal), "{left:?}");

            let place = |id: MessageId| world.delivered.iter().position(|delivered| *delivered == id);
            for key in ["0", "1", "2"] {
                let order = world.enqueued.iter().filter(|message| message.ordering_key.as_deref() == Some(key));
                // Once a head was dead its followers may have gone on without it.
                let places: Vec<_> = order.filter(|message| !world.died.contains(&message.id)).map(|message| place(message.id)).collect();
                assert!(places.is_sorted(), "key {key} was delivered as {places:?}");
            }
        });
    }
}
