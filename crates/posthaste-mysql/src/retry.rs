//! Transactions that lose against another one are begun again, a few times.

use std::time::Duration;

use metrics::counter;
use tokio::time::sleep;

use crate::error::{LOCK_WAIT_TIMEOUT, NOT_AT_ONCE};

/// How often a transaction is begun again before its failure is reported.
pub const MAX_RETRIES: u32 = 5;

/// The wait before the first retry; each further one waits twice as long. Cut at random, so that those who met do not
/// meet again.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// The server's number for a deadlock. It has undone the whole transaction.
pub(crate) const DEADLOCK: u16 = 1213;

/// Runs `$work` again while it loses against other transactions. `$work` is a future that begins a transaction of its own.
macro_rules! retrying {
    ($work:expr) => {{
        let mut retries = $crate::retry::Retries::default();
        loop {
            match $work.await {
                Err(error) if retries.allow(&error).await => {}
                done => break done,
            }
        }
    }};
}
pub(crate) use retrying;

#[derive(Debug, Default)]
pub(crate) struct Retries(u32);

impl Retries {
    /// Whether to try again after this failure. Waits before it says so.
    pub(crate) async fn allow(&mut self, error: &sqlx::Error) -> bool {
        let Some(reason) = lost_against_another(error).filter(|_| self.0 < MAX_RETRIES) else {
            return false;
        };
        count(reason, 1);
        tracing::debug!(
            reason,
            retry = self.0 + 1,
            "a transaction lost against another one and is begun again"
        );
        let wait = FIRST_WAIT * 2_u32.pow(self.0);
        self.0 += 1;
        sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
        true
    }
}

/// Shows the figures before anything has happened, so that the first retry is an increase.
pub(crate) fn register() {
    for reason in [LOST_IN_DEADLOCK, LOST_WAITING] {
        count(reason, 0);
    }
}

fn count(reason: &'static str, retries: u64) {
    counter!("outbox_store_retry_count", "reason" => reason).increment(retries);
}

const LOST_IN_DEADLOCK: &str = "deadlock";
const LOST_WAITING: &str = "lock_wait_timeout";

/// Why the server ended a transaction that may simply be run again.
pub(crate) fn lost_against_another(error: &sqlx::Error) -> Option<&'static str> {
    match crate::error::number(error)? {
        DEADLOCK => Some(LOST_IN_DEADLOCK),
        LOCK_WAIT_TIMEOUT | NOT_AT_ONCE => Some(LOST_WAITING),
        _ => None,
    }
}
