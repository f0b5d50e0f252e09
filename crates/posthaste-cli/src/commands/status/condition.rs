//! Conditions of `posthaste status --fail-if`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use humantime_serde::re::humantime::parse_duration;
use posthaste_core::readable::Readable;
use posthaste_core::store::{OutboxStats, ShardStatus};

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
    /// The largest of all shards.
    ShardLag,
    /// Those that may be read, and are not.
    UnreadShards,
}

/// What conditions are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures<'a> {
    pub(super) stats: &'a OutboxStats,
    pub(super) alive: usize,
    /// None in an outbox that has no shards.
    pub(super) shards: &'a [ShardStatus],
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
    ///
    /// # Errors
    /// If there is nothing that it is about: a condition that can never be met would watch over nothing without a word.
    pub(super) fn met(&self, figures: Figures<'_>) -> Result<Option<String>, String> {
        if self.figure.is_of_shards() && figures.shards.is_empty() {
            return Err(format!(
                "--fail-if '{}': this outbox has no shards; those are of the log (database.layout = \"log\")",
                self.text
            ));
        }
        let value = self.figure.of(figures);
        let met = match self.relation {
            Relation::Above => value > self.limit,
            Relation::AtLeast => value >= self.limit,
            Relation::Below => value < self.limit,
            Relation::AtMost => value <= self.limit,
            Relation::Equal => (value - self.limit).abs() < f64::EPSILON,
        };
        Ok(met.then(|| {
            let value = match self.figure {
                Figure::Oldest => Readable(Duration::from_secs_f64(value.max(0.0).floor())).to_string(),
                _ => value.to_string(),
            };
            let whose = self.figure.whose(figures.shards);
            format!("{} is {value}{whose} (--fail-if '{}')", self.figure, self.text)
        }))
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "write a figure ({}), one of > >= < <= = and a number, or for oldest a duration: dead>0, pending>1000, \
                 oldest>5m, relays<1, unread-shards>0",
                Figure::names()
            )
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
    const ALL: [Self; 8] = [
        Self::Pending,
        Self::Waiting,
        Self::Processing,
        Self::Dead,
        Self::Oldest,
        Self::Relays,
        Self::ShardLag,
        Self::UnreadShards,
    ];

    /// All of them, as a sentence names them.
    fn names() -> String {
        let [others @ .., last] = Self::ALL.map(|figure| figure.to_string());
        format!("{} or {last}", others.join(", "))
    }

    fn is_of_shards(self) -> bool {
        matches!(self, Self::ShardLag | Self::UnreadShards)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "limits are far below what a float holds exactly"
    )]
    fn of(self, figures: Figures<'_>) -> f64 {
        let stats = figures.stats;
        match self {
            Self::Pending => stats.pending as f64,
            Self::Waiting => stats.waiting as f64,
            Self::Processing => stats.processing as f64,
            Self::Dead => stats.dead as f64,
            Self::Oldest => stats.oldest_seconds,
            Self::Relays => figures.alive as f64,
            Self::ShardLag => largest_lag(figures.shards).map_or(0, |shard| shard.lag) as f64,
            Self::UnreadShards => unread(figures.shards).count() as f64,
        }
    }

    /// Which shards it is about: ` in shard 3` or `: 0, 3`.
    fn whose(self, shards: &[ShardStatus]) -> String {
        match self {
            Self::ShardLag => {
                largest_lag(shards).map_or_else(String::new, |shard| format!(" in shard {}", shard.shard))
            }
            Self::UnreadShards => {
                let unread: Vec<_> = unread(shards).map(|shard| shard.shard.to_string()).collect();
                let colon = if unread.is_empty() { "" } else { ": " };
                format!("{colon}{}", unread.join(", "))
            }
            _ => String::new(),
        }
    }
}

fn largest_lag(shards: &[ShardStatus]) -> Option<&ShardStatus> {
    shards.iter().max_by_key(|shard| shard.lag)
}

/// One that waits for an earlier generation is to be read by nobody yet.
fn unread(shards: &[ShardStatus]) -> impl Iterator<Item = &ShardStatus> {
    shards.iter().filter(|shard| shard.readable && shard.owner.is_none())
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
            Self::ShardLag => "shard-lag",
            Self::UnreadShards => "unread-shards",
        })
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|figure| figure.to_string() == name);
        known.ok_or_else(|| format!("{name:?} is no figure; use {}", Self::names()))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn shard(shard: i32, lag: u64, owner: Option<Uuid>, readable: bool) -> ShardStatus {
        ShardStatus {
            shard,
            owner,
            epoch: 7,
            lag,
            position: 4_711,
            generation: 1,
            readable,
            leased_until: None,
            process: None,
        }
    }

    fn met(condition: &str) -> Option<String> {
        // One is read, two are not, and one waits for those before it.
        let shards = [
            shard(0, 12, None, true),
            shard(1, 3_000, Some(Uuid::nil()), true),
            shard(2, 0, None, true),
            shard(3, 40, None, false),
        ];
        let stats = OutboxStats {
            pending: 1_001,
            dead: 2,
            oldest_seconds: 301.5,
            ..OutboxStats::default()
        };
        let figures = Figures {
            stats: &stats,
            alive: 0,
            shards: &shards,
        };
        condition.parse::<Condition>().unwrap().met(figures).unwrap()
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
            "shard-lag>2999",
            "unread-shards=2",
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
            "shard-lag>3000",
            "unread-shards>2",
        ] {
            assert_eq!(met(condition), None, "{condition}");
        }
        assert_eq!(met("oldest>5m").unwrap(), "oldest is 5m 1s (--fail-if 'oldest>5m')");
        assert_eq!(met("dead>0").unwrap(), "dead is 2 (--fail-if 'dead>0')");
        assert_eq!(
            met("shard-lag>5").unwrap(),
            "shard-lag is 3000 in shard 1 (--fail-if 'shard-lag>5')"
        );
        assert_eq!(
            met("unread-shards>0").unwrap(),
            "unread-shards is 2: 0, 2 (--fail-if 'unread-shards>0')"
        );
    }

    #[test]
    fn shards_are_not_watched_where_there_are_none() {
        let stats = OutboxStats::default();
        let figures = Figures {
            stats: &stats,
            alive: 0,
            shards: &[],
        };
        for condition in ["shard-lag>5", "unread-shards>0"] {
            let refused = condition.parse::<Condition>().unwrap().met(figures).unwrap_err();
            assert!(refused.contains("has no shards"), "{condition}: {refused}");
        }
        assert_eq!("dead>0".parse::<Condition>().unwrap().met(figures), Ok(None));
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
