//! How much is borne with: more where others take the machine's processors away, as on a shared host.
//!
//! A virtual machine is told how long its processors were ready to run and did not (`steal` in `/proc/stat`). Where that is much,
//! tests with servers and leases fail for no other reason than that nothing was answered for seconds. They still have to pass
//! alone, and are named.

use std::{fs, time::Duration};

/// From this share on, of all the time that processors were wanted, they are said to be taken away.
const STARVED: f64 = 0.2;

/// What is borne with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// How many tests may have failed among others only.
    pub(super) shaken: usize,
    /// How often a test is tried alone before it counts as failed there, too.
    pub(super) tries: usize,
    /// When no further test is run alone: then so many have failed that the run is lost.
    pub(super) alone: Duration,
}

impl Patience {
    /// On a machine that has its processors for itself.
    pub(super) const QUIET: Self = Self {
        shaken: 3,
        tries: 1,
        alone: Duration::from_mins(4),
    };

    const STARVED: Self = Self {
        shaken: 25,
        tries: 2,
        alone: Duration::from_mins(10),
    };
}

/// Time that all processors together have worked, and time that they wanted to work and could not, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Processors {
    worked: u64,
    stolen: u64,
}

impl Processors {
    /// As of now; nothing where the system does not say.
    pub(super) fn now() -> Self {
        fs::read_to_string("/proc/stat").map_or_else(|_| Self::default(), |stat| Self::read(&stat))
    }

    fn read(stat: &str) -> Self {
        let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
        let mut ticks = line
            .unwrap_or_default()
            .split_whitespace()
            .map_while(|word| word.parse().ok());
        // user, nice, system, idle, iowait, irq, softirq, steal
        let mut next = || ticks.next().unwrap_or(0);
        let busy = next() + next() + next();
        let _idle = next() + next();
        let worked = busy + next() + next();
        Self { worked, stolen: next() }
    }

    /// The share that was taken away since then.
    pub(super) fn stolen_since(self, before: Self) -> f64 {
        let ticks = |now: u64, before: u64| f64::from(u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX));
        let (worked, stolen) = (ticks(self.worked, before.worked), ticks(self.stolen, before.stolen));
        if stolen == 0.0 { 0.0 } else { stolen / (worked + stolen) }
    }

    /// What is to be borne with after such a time.
    pub(super) fn patience_since(self, before: Self) -> Patience {
        if self.stolen_since(before) < STARVED {
            Patience::QUIET
        } else {
            Patience::STARVED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_starved_is_borne_with() {
        let before = Processors::read("cpu  100 0 50 1000 10 0 5 20 0 0\ncpu0 1 2 3\n");
        assert_eq!((before.worked, before.stolen), (155, 20));
        let quiet = Processors::read("cpu  900 0 50 9000 10 0 5 40 0 0\n");
        assert_eq!(quiet.patience_since(before), Patience::QUIET);
        let starved = Processors::read("cpu  500 0 50 1000 10 0 5 320 0 0\n");
        assert!((starved.stolen_since(before) - 300.0 / 700.0).abs() < 1e-9);
        assert_eq!(starved.patience_since(before), Patience::STARVED);
        let unknown = Processors::read("");
        assert_eq!(unknown.patience_since(unknown), Patience::QUIET);
    }
}
