//! What is compared: ways from a table to a sink.

use crate::layout::{self, Layout};

/// One way from a table to a sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    /// Its name in figures and on the command line.
    pub(crate) name: &'static str,
    /// What it is, for people.
    pub(crate) title: &'static str,
    pub(crate) layout: Layout,
    pub(crate) how: How,
    /// Whether rows of a key arrive in order; a run in which they do not has no number.
    pub(crate) ordered: bool,
    /// The most rows it is given, where it takes its time.
    pub(crate) most_rows: Option<u32>,
}

/// How rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By Posthaste's relay.
    Relay(Policy),
    /// `UPDATE … SKIP LOCKED` with a lease, publish, `UPDATE`.
    ClaimAndAcknowledge,
    /// `DELETE … SKIP LOCKED RETURNING`, publish, commit.
    DeleteReturning,
    /// `SELECT … FOR UPDATE SKIP LOCKED`, publish, `UPDATE`, commit: what polling publishers commonly do.
    LockedBatch,
    /// Read up to the oldest running transaction, publish, move the cursor.
    Watermark,
    /// Design A as it is specified: ten rows, one by one, every five seconds.
    OrderServicePoller { pauses: bool },
    /// Design E as it is specified: fifty rows, one by one, every 200 ms.
    LogisticsPoller { pauses: bool },
    /// The rows are read and nothing is done about it.
    SelectOnly,
    /// Rows from memory to the broker.
    ProduceOnly,
    /// Rows are read and sent, and nothing is written down.
    SelectAndProduce,
    /// Debezium Server.
    Debezium,
}

/// With which settings a relay runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Posthaste's defaults.
    Ours,
    /// The same, without order.
    Unordered,
    /// Those that the design of the table asks for.
    Own,
    /// Posthaste's defaults with the windows of a log: 2,000 rows at a time, 16,000 in flight.
    Log,
}

impl Arm {
    const fn new(name: &'static str, title: &'static str, layout: Layout, how: How) -> Self {
        Self {
            name,
            title,
            layout,
            how,
            ordered: true,
            most_rows: None,
        }
    }

    const fn unordered(mut self) -> Self {
        self.ordered = false;
        self
    }

    const fn at_most(mut self, rows: u32) -> Self {
        self.most_rows = Some(rows);
        self
    }

    /// Whether it can be used with a broker, and without one.
    pub(crate) fn takes(&self, with_broker: bool) -> bool {
        match self.how {
            How::SelectOnly => !with_broker,
            How::ProduceOnly | How::SelectAndProduce | How::Debezium => with_broker,
            _ => true,
        }
    }

    /// How many rows warm it up: so many that a relay makes all its producers and knows every partition, as a bare producer
    /// does before it is measured.
    pub(crate) fn warm_up_rows(&self) -> u32 {
        match self.how {
            How::Relay(_) if self.most_rows.is_none() => 2_000,
            _ => 1,
        }
    }

    /// Whether it does so little that a run needs many rows to take any time.
    pub(crate) fn is_fast(&self) -> bool {
        self.layout.is_log() && self.most_rows.is_none() || self.how == How::Watermark
    }
}

/// The arm of this name.
pub(crate) fn find(name: &str) -> Option<Arm> {
    all().into_iter().find(|arm| arm.name == name)
}

/// All of them.
pub(crate) fn all() -> Vec<Arm> {
    use How::{
        ClaimAndAcknowledge, Debezium, DeleteReturning, LockedBatch, LogisticsPoller, OrderServicePoller, ProduceOnly,
        Relay, SelectAndProduce, SelectOnly,
    };
    use Layout::{Commerce, Logistics, OrderService, Queue, Usage};
    let log = layout::log();
    vec![
        Arm::new("log", "log", log, Relay(Policy::Log)),
        Arm::new("log-again", "log, once more (A/A)", log, Relay(Policy::Log)),
        Arm::new("queue", "queue, ordered", Queue, Relay(Policy::Ours)),
        Arm::new("queue-unordered", "queue, unordered", Queue, Relay(Policy::Unordered)).unordered(),
        Arm::new(
            "a-ours",
            "existing table A, our policy",
            OrderService,
            Relay(Policy::Ours),
        ),
        Arm::new(
            "a-own",
            "existing table A, its policy",
            OrderService,
            Relay(Policy::Own),
        )
        .at_most(20),
        Arm::new("b-ours", "existing table B, our policy", Usage, Relay(Policy::Ours)).unordered(),
        Arm::new("b-own", "existing table B, its policy", Usage, Relay(Policy::Own)).unordered(),
        Arm::new("c-ours", "existing log C, our policy", Commerce, Relay(Policy::Log)),
        Arm::new("c-own", "existing log C, its policy", Commerce, Relay(Policy::Own)),
        Arm::new("e-ours", "existing table E, our policy", Logistics, Relay(Policy::Ours)),
        Arm::new("e-own", "existing table E, its policy", Logistics, Relay(Policy::Own)),
        Arm::new(
            "a-poller",
            "status poller as A specifies",
            OrderService,
            OrderServicePoller { pauses: true },
        )
        .at_most(20),
        Arm::new(
            "a-poller-busy",
            "status poller of A without its pauses",
            OrderService,
            OrderServicePoller { pauses: false },
        )
        .at_most(5_000),
        Arm::new(
            "e-poller",
            "status poller as E specifies",
            Logistics,
            LogisticsPoller { pauses: true },
        )
        .at_most(1_000),
        Arm::new(
            "e-poller-busy",
            "status poller of E without its pauses",
            Logistics,
            LogisticsPoller { pauses: false },
        )
        .at_most(5_000),
        Arm::new(
            "claim-ack",
            "hand-written SKIP LOCKED claim and acknowledgement",
            Queue,
            ClaimAndAcknowledge,
        ),
        Arm::new(
            "delete-returning",
            "hand-written DELETE RETURNING",
            Queue,
            DeleteReturning,
        ),
        Arm::new(
            "watermark",
            "hand-written cursor behind the oldest transaction (xmin)",
            Layout::Watermark,
            How::Watermark,
        ),
        Arm::new(
            "polling-peer",
            "hand-written polling publisher, after the common design",
            Queue,
            LockedBatch,
        ),
        Arm::new("floor-select", "floor: bare SELECT", log, SelectOnly),
        Arm::new("floor-produce", "floor: bare producer", log, ProduceOnly),
        Arm::new(
            "floor-both",
            "floor: bare SELECT and bare producer",
            log,
            SelectAndProduce,
        ),
        Arm::new("debezium", "Debezium Server (peer)", Layout::Debezium, Debezium),
    ]
}
