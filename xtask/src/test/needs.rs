//! What the tests need, and why some of it is not there.

use std::{env, fmt};

/// The variable by which the tests learn what they have to do without.
pub(super) const WITHOUT: &str = "POSTHASTE_TEST_WITHOUT";

/// What one test run needs, in the order in which it is reported.
#[derive(Debug, Default)]
pub(super) struct Needs(Vec<Need>);

#[derive(Debug)]
struct Need {
    title: &'static str,
    /// What the tests call the thing they need, and why it is not there.
    missing: Option<(&'static str, String)>,
    /// Whether a run without it is complete.
    optional: bool,
}

impl Needs {
    /// The same as [`Needs::provide`] for something without which a run is complete, though it is said that it was not run.
    pub(super) fn provide_if_possible<T>(
        &mut self,
        title: &'static str,
        need: &'static str,
        get: impl FnOnce() -> anyhow::Result<T>,
    ) -> Option<T> {
        let got = self.provide(title, need, get);
        if let Some(need) = self.0.last_mut() {
            need.optional = true;
            if let Some((_, reason)) = &need.missing {
                eprintln!("warning: {title} is NOT RUN: {reason}");
            }
        }
        got
    }

    /// Whether all is there that must be.
    pub(super) fn is_complete(&self) -> bool {
        self.0.iter().all(|need| need.missing.is_none() || need.optional)
    }

    /// Tries to get it, and notes how that went.
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
        self.0.push(Need {
            title,
            missing,
            optional: false,
        });
        got.ok()
    }

    /// The value of [`WITHOUT`] for the tests.
    pub(super) fn missing(&self) -> String {
        let missing: Vec<_> = self
            .0
            .iter()
            .filter_map(|need| Some(need.missing.as_ref()?.0))
            .collect();
        missing.join(",")
    }
}

fn without() -> Vec<String> {
    env::var(WITHOUT)
        .unwrap_or_default()
        .split(',')
        .map(str::to_owned)
        .collect()
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|need| need.title.len()).max().unwrap_or(0);
        for Need { title, missing, .. } in &self.0 {
            match missing {
                None => writeln!(f, "  {title:width$}  ready")?,
                // One line each: the reason may be a program's whole output.
                Some((_, reason)) => {
                    writeln!(
                        f,
                        "  {title:width$}  MISSING: {}",
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
        let mut needs = Needs::default();
        assert_eq!(needs.provide("Good", "good", || Ok(1)), Some(1));
        assert_eq!(
            needs.provide("Bad", "bad", || anyhow::bail!("no such\nserver")),
            None::<u8>
        );

        assert_eq!(needs.missing(), "bad");
        assert_eq!(needs.to_string(), "  Good  ready\n  Bad   MISSING: no such\n");
        assert!(!needs.is_complete());
    }

    #[test]
    fn what_may_be_missing_is_said_and_leaves_the_run_complete() {
        let mut needs = Needs::default();
        let got: Option<u8> = needs.provide_if_possible("Rare", "rare", || anyhow::bail!("gone today"));
        assert_eq!(got, None);
        assert_eq!(needs.missing(), "rare");
        assert_eq!(needs.to_string(), "  Rare  MISSING: gone today\n");
        assert!(needs.is_complete());
    }
}
