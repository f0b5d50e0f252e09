//! Conditions of `posthaste status --fail-if`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use humantime_serde::re::humantime::parse_duration;
use posthaste_core::readable::Readable;
use posthaste_core::store::OutboxStats;

/// A figure and a limit, such as `dead>0` or `oldest>5m`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    figure: Figure,
    relation: Relation,
    limit: f64,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Pending,
    Waiting,
    Processing,
    Dead,
    /// In seconds.
    Oldest,
    /// Those that are alive.
    Relays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
}

/// Longer signs first, so that `>=` is not taken for `>`.
const RELATIONS: [(&str, Relation); 6] = [
    (">=", Relation::AtLeast),
    ("<=", Relation::AtMost),
    ("==", Relation::Equal),
    (">", Relation::Above),
    ("<", Relation::Below),
    ("=", Relation::Equal),
];

impl Condition {
    /// Why the condition is met, if it is.
    pub(super) fn met(&self, stats: &OutboxStats, alive: usize) -> Option<String> {
        let value = self.figure.of(stats, alive);
        let met = match self.relation {
            Relation::Above => value > self.limit,
            Relation::AtLeast => value >= self.limit,
            Relation::Below => value < self.limit,
            Relation::AtMost => value <= self.limit,
            Relation::Equal => (value - self.limit).abs() < f64::EPSILON,
        };
        met.then(|| {
            let value = match self.figure {
                Figure::Oldest => Readable(Duration::from_secs_f64(value.max(0.0).floor())).to_string(),
                _ => value.to_string(),
            };
            format!("{} is {value} (--fail-if '{}')", self.figure, self.text)
        })
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "write a figure (pending, waiting, processing, dead, oldest or relays), one of > >= < <= = and a number, or for \
             oldest a duration: dead>0, pending>1000, oldest>5m, relays<1"
                .to_owned()
        };
        let at = text.find(['<', '>', '=']).ok_or_else(wrong)?;
        let (figure, rest) = text.split_at(at);
        let (sign, relation) = RELATIONS
            .into_iter()
            .find(|(sign, _)| rest.starts_with(sign))
            .ok_or_else(wrong)?;
        let figure = figure.trim().parse()?;
        let limit = rest[sign.len()..].trim();
        let limit = match figure {
            Figure::Oldest => parse_duration(limit)
                .map_err(|error| format!("{limit:?} is no duration such as 5m: {error}"))?
                .as_secs_f64(),
            _ => limit.parse::<u32>().map_err(|_| wrong())?.into(),
        };
        Ok(Self {
            figure,
            relation,
            limit,
            text: text.to_owned(),
        })
    }
}

impl Figure {
    const ALL: [Self; 6] = [
        Self::Pending,
        Self::Waiting,
        Self::Processing,
        Self::Dead,
        Self::Oldest,
        Self::Relays,
    ];

    #[expect(
        clippy::cast_precision_loss,
        reason = "limits are far below what a float holds exactly"
    )]
    fn of(self, stats: &OutboxStats, alive: usize) -> f64 {
        match self {
            Self::Pending => stats.pending as f64,
            Self::Waiting => stats.waiting as f64,
            Self::Processing => stats.processing as f64,
            Self::Dead => stats.dead as f64,
            Self::Oldest => stats.oldest_seconds,
            Self::Relays => alive as f64,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Processing => "processing",
            Self::Dead => "dead",
            Self::Oldest => "oldest",
            Self::Relays => "relays",
        })
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|figure| figure.to_string() == name);
        known.ok_or_else(|| format!("{name:?} is no figure; use pending, waiting, processing, dead, oldest or relays"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(condition: &str) -> Option<String> {
        let stats = OutboxStats {
            pending: 1_001,
            dead: 2,
            oldest_seconds: 301.5,
            ..OutboxStats::default()
        };
        condition.parse::<Condition>().unwrap().met(&stats, 0)
    }

    #[test]
    fn a_condition_is_met_by_what_is_there() {
        for condition in [
            "dead>0",
            "dead >= 2",
            "dead=2",
            "dead==2",
            "pending>1000",
            "oldest>5m",
            "relays<1",
            "waiting<=0",
        ] {
            assert!(met(condition).is_some(), "{condition}");
        }
        for condition in [
            "dead>2",
            "dead<2",
            "pending>1001",
            "oldest>6m",
            "relays>0",
            "processing=1",
        ] {
            assert_eq!(met(condition), None, "{condition}");
        }
        assert_eq!(met("oldest>5m").unwrap(), "oldest is 5m 1s (--fail-if 'oldest>5m')");
        assert_eq!(met("dead>0").unwrap(), "dead is 2 (--fail-if 'dead>0')");
    }

    #[test]
    fn what_is_no_condition_is_refused_with_an_example() {
        for (condition, part) in [
            ("dead", "dead>0"),
            ("ded>0", "is no figure"),
            ("dead>many", "dead>0"),
            ("dead>-1", "dead>0"),
            ("oldest>5", "duration such as 5m"),
        ] {
            let refused = condition.parse::<Condition>().unwrap_err();
            assert!(refused.contains(part), "{condition}: {refused}");
        }
    }
}
