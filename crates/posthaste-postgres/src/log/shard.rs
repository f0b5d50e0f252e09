//! A part of a log that is a log of its own.

use std::ops::RangeInclusive;

use posthaste_sql::TableMap;
use posthaste_sql::log::{Ranges, SHARD_BITS};
use posthaste_sql::table::Role;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

/// A part of a log that is a log of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) number: i32,
    /// The sequence that numbers its rows, as `regclass` reads it.
    pub(super) sequence: String,
    /// That of the seat which lets its holder write how far it was read.
    pub(super) epoch: i64,
}

/// Of one that has no seat: no shard was ever taken with it.
pub(super) const NO_EPOCH: i64 = -1;

impl Shard {
    /// None if the log has no parts.
    pub(super) fn of(map: &TableMap, number: i32, epoch: i64) -> Option<Self> {
        let schema = map.schema().filter(|_| map.has(Role::Shard))?;
        let sequence = format!("{}.log_shard_{number}_seq", schema.quoted('"'));
        Some(Self {
            number,
            sequence,
            epoch,
        })
    }

    /// The one in which a row has this number.
    pub(super) fn of_row(number: i64) -> i32 {
        i32::try_from(number >> SHARD_BITS).unwrap_or(i32::MAX)
    }

    /// One of its numbers as an operator sees it, who counts them within the shard.
    pub(super) fn position(&self, number: i64) -> i64 {
        number - (i64::from(self.number) << SHARD_BITS)
    }

    /// Those of some numbers that are its.
    pub(super) fn part_of(&self, ids: &Ranges) -> Ranges {
        let own = self.numbers();
        let mut part = Ranges::default();
        for range in ids.iter() {
            let (first, last) = (*range.start().max(own.start()), *range.end().min(own.end()));
            if first <= last {
                part.insert(first..=last);
            }
        }
        part
    }

    /// The numbers of its rows.
    pub(super) fn numbers(&self) -> RangeInclusive<i64> {
        let before = i64::from(self.number) << SHARD_BITS;
        before + 1..=before + (1 << SHARD_BITS) - 1
    }
}

/// The last arguments of statements that read rows, where there are shards: of which, and from which segment on.
pub(super) fn of_segments<'q>(
    query: Query<'q, Postgres, PgArguments>,
    shard: Option<&Shard>,
    first: i64,
) -> Query<'q, Postgres, PgArguments> {
    match shard {
        Some(shard) => query.bind(shard.number).bind(first),
        None => query,
    }
}

/// The last argument of statements that are about one shard, where there are shards.
pub(super) fn of_shard<'q>(
    query: Query<'q, Postgres, PgArguments>,
    shard: Option<&Shard>,
) -> Query<'q, Postgres, PgArguments> {
    match shard {
        Some(shard) => query.bind(shard.number),
        None => query,
    }
}
