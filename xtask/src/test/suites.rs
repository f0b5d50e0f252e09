//! Which parts of the tests could be run, and why others could not.

use std::{env, fmt};

/// The variable by which the tests learn what they have to do without.
pub(super) const WITHOUT: &str = "POSTHASTE_TEST_WITHOUT";

/// The suites of one test run, in the order in which they are reported.
#[derive(Debug, Default)]
pub(super) struct Suites(Vec<Suite>);

#[derive(Debug)]
struct Suite {
    title: &'static str,
    /// What the tests call the thing they need, and why it is not there.
    missing: Option<(&'static str, String)>,
    /// Whether a run without it is complete.
    optional: bool,
}

impl Suites {
    /// Notes a suite that needs nothing.
    pub(super) fn add(&mut self, title: &'static str) {
        self.0.push(Suite {
            title,
            missing: None,
            optional: false,
        });
    }

    /// The same as [`Suites::provide`] for a suite without which a run is complete, though it is said that it was not run.
    pub(super) fn provide_if_possible<T>(
        &mut self,
        title: &'static str,
        need: &'static str,
        get: impl FnOnce() -> anyhow::Result<T>,
    ) -> Option<T> {
        let got = self.provide(title, need, get);
        if let Some(suite) = self.0.last_mut() {
            suite.optional = true;
            if let Some((_, reason)) = &suite.missing {
                eprintln!("warning: {title} is NOT RUN: {reason}");
            }
        }
        got
    }

    /// Whether every suite is there that must be.
    pub(super) fn is_complete(&self) -> bool {
        self.0.iter().all(|suite| suite.missing.is_none() || suite.optional)
    }

    /// Tries to get what a suite needs, and notes how that went.
    pub(super) fn provide<T>(
        &mut self,
        title: &'static str,
        need: &'static str,
        get: impl FnOnce() -> anyhow::Result<T>,
    ) -> Option<T> {
        let got = if without().iter().any(|left_out| left_out == need) {
            Err(anyhow::anyhow!("left out by {WITHOUT}"))
        } else {
            get()
        };
        let missing = got.as_ref().err().map(|reason| (need, format!("{reason:#}")));
        self.0.push(Suite {
            title,
            missing,
            optional: false,
        });
        got.ok()
    }

    /// The value of [`WITHOUT`] for the tests.
    pub(super) fn missing(&self) -> String {
        let needs: Vec<_> = self
            .0
            .iter()
            .filter_map(|suite| Some(suite.missing.as_ref()?.0))
            .collect();
        needs.join(",")
    }
}

fn without() -> Vec<String> {
    env::var(WITHOUT)
        .unwrap_or_default()
        .split(',')
        .map(str::to_owned)
        .collect()
}

impl fmt::Display for Suites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|suite| suite.title.len()).max().unwrap_or(0);
        for Suite { title, missing, .. } in &self.0 {
            match missing {
                None => writeln!(f, "  {title:width$}  run")?,
                // One line each: the reason may be a program's whole output.
                Some((_, reason)) => {
                    writeln!(
                        f,
                        "  {title:width$}  NOT RUN: {}",
                        reason.lines().next().unwrap_or_default()
                    )?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_listed_and_reported() {
        let mut suites = Suites::default();
        suites.add("Rust");
        assert_eq!(suites.provide("Good", "good", || Ok(1)), Some(1));
        assert_eq!(
            suites.provide("Bad", "bad", || anyhow::bail!("no such\nserver")),
            None::<u8>
        );

        assert_eq!(suites.missing(), "bad");
        assert_eq!(
            suites.to_string(),
            "  Rust  run\n  Good  run\n  Bad   NOT RUN: no such\n"
        );
        assert!(!suites.is_complete());
    }

    #[test]
    fn what_may_be_missing_is_said_and_leaves_the_run_complete() {
        let mut suites = Suites::default();
        let got: Option<u8> = suites.provide_if_possible("Rare", "rare", || anyhow::bail!("gone today"));
        assert_eq!(got, None);
        assert_eq!(suites.missing(), "rare");
        assert_eq!(suites.to_string(), "  Rare  NOT RUN: gone today\n");
        assert!(suites.is_complete());
    }
}
