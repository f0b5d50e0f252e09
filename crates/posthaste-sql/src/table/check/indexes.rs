//! Whether the indexes of a live table suit its map.

use super::{Checker, Severity};
use crate::table::catalogue::{LiveColumn, LiveIndex};
use crate::table::{Layout, LiveTable, Role, Shape, Table};

/// Roles whose columns the relay changes.
const CHANGED: [Role; 11] = [
    Role::Version,
    Role::Status,
    Role::Attempts,
    Role::NextAttemptAt,
    Role::LockedBy,
    Role::LeaseToken,
    Role::LockedUntil,
    Role::LockedAt,
    Role::LastError,
    Role::UpdatedAt,
    Role::DeliveredAt,
];

fn partitioned(by: &[String]) -> String {
    match by {
        [] => "the table is partitioned by an expression".to_owned(),
        by => format!("the table is partitioned by ({})", by.join(", ")),
    }
}

impl Checker<'_> {
    pub(super) fn indexes(&mut self, live: &LiveTable) {
        let map = self.map;
        let name = |role: Role| map.column(role).map(|column| column.name.as_str());
        let id = name(Role::Id).unwrap_or_default();
        if let (None, Some(column)) = (live.column(id), map.column(Role::Id)) {
            match self.ddl.add_column(Table::Outbox, Role::Id, column, live) {
                // Nothing can be said of a table that has to be created anew.
                None => return,
                // It comes with its key.
                Some(added) if added.ends_with("primary key;") || added.ends_with("unique;") => {}
                Some(_) => self.unique_id(live, id),
            }
        } else {
            self.unique_id(live, id);
        }
        if let (Some(key), false) = (name(Role::DedupeKey), map.has(Table::Dedupe)) {
            let mut wanted: Vec<&str> = [Role::Namespace, Role::Topic].into_iter().filter_map(name).collect();
            wanted.push(key);
            let same = |columns: &[String]| {
                columns.len() == wanted.len() && wanted.iter().all(|column| columns.iter().any(|there| there == column))
            };
            if !live.indexes.iter().any(|index| index.unique && same(&index.columns)) {
                let mut problem = format!(
                    "there is no unique index on ({}), so equal keys would be enqueued twice",
                    wanted.join(", ")
                );
                let mut fix = self.ddl.unique_index(live, &wanted, key);
                problem += &self.in_part(live, &wanted);
                if let Shape::Partitioned { by } = &live.shape
                    && (by.is_empty() || by.iter().any(|column| !wanted.contains(&column.as_str())))
                {
                    problem = format!(
                        "{problem}; {}, and cannot have one: take dedupe_key out of the map",
                        partitioned(by)
                    );
                    fix = None;
                }
                self.error("columns.dedupe_key".to_owned(), problem, fix);
            }
        }
        if map.layout() == Layout::Queue {
            self.claim_order(live);
            self.changed_columns(live, id);
            self.given_order(live);
            self.order_within_transactions(live);
        }
    }

    /// Verdicts name rows by their id.
    fn unique_id(&mut self, live: &LiveTable, id: &str) {
        let field = "columns.id".to_owned();
        // Unique by the id, perhaps together with some of these columns.
        let unique_with = |others: &[String]| {
            let fits = |column: &String| column == id || others.contains(column);
            live.indexes.iter().any(|index| {
                let names_id = index.columns.iter().any(|column| column == id);
                index.unique && !index.partial && names_id && index.columns.iter().all(fits)
            })
        };
        if unique_with(&[]) {
            return;
        }
        let problem = format!("two rows could have the same {id}");
        let Shape::Partitioned { by } = &live.shape else {
            let problem = format!("{problem}; make it the primary key{}", self.in_part(live, &[id]));
            return self.error(field, problem, self.ddl.primary_key(live, &[]));
        };
        let problem = format!("{problem}; {}", partitioned(by));
        if by.is_empty() {
            let problem = format!("{problem}, and can have no unique index: partition it by columns");
            self.error(field, problem, None);
        } else if unique_with(by) {
            let problem = format!(
                "{problem}, which its unique index has to include: see to it that every row has an id of its own, such as a UUID"
            );
            self.note(Severity::Warning, field, problem, None);
        } else {
            let problem = format!("{problem}, which its primary key has to include");
            self.error(field, problem, self.ddl.primary_key(live, by));
        }
    }

    /// Every claim of a log asks whether its rows, and earlier ones of their lanes, are in the table of failures.
    pub(super) fn failed_indexes(&mut self, live: &LiveTable) {
        let map = self.map;
        let name = |role: Role| map.side_column(Table::Failed, role).map(|column| column.name.as_str());
        let key = name(Role::OrderingKey).or_else(|| name(Role::AggregateId));
        let lane = if map.has(Role::AggregateType) {
            name(Role::AggregateType)
        } else {
            None
        };
        let lane: Vec<&str> = lane.into_iter().chain(key).collect();
        for (purpose, columns, asked) in [
            ("event", name(Role::EventId).into_iter().collect(), "for its events"),
            ("lane", lane, "for earlier events of its keys"),
        ] {
            let columns: Vec<&str> = columns;
            // They are compared as texts, which an index on other types does not serve.
            let is_text = |column: &&str| {
                let found = live.column(column);
                found.is_some_and(|found| matches!(&*found.type_name, "text" | "character varying"))
            };
            if columns.is_empty() || !columns.iter().all(is_text) {
                continue;
            }
            let serves = |index: &LiveIndex| {
                let first = index.columns.get(..columns.len()).unwrap_or_default();
                !index.partial
                    && !first.is_empty()
                    && columns.iter().all(|column| first.iter().any(|there| there == column))
            };
            if live.indexes.iter().any(serves) {
                continue;
            }
            let problem = format!(
                "there is no index on ({}), so every claim reads all of {} {asked}, which takes long when many failed",
                columns.join(", "),
                live.name
            );
            let fix = self.ddl.index_on(live, purpose, &columns, "");
            self.note(Severity::Warning, "tables.failed".to_owned(), problem, fix);
        }
    }

    /// A unique index over what the relay changes would refuse its verdicts.
    fn changed_columns(&mut self, live: &LiveTable, id: &str) {
        let map = self.map;
        for index in live.indexes.iter().filter(|index| index.unique) {
            if index.columns.iter().any(|column| column == id) {
                continue;
            }
            let changed = CHANGED.iter().find_map(|role| {
                let column = map.column(*role)?;
                let is_there = index.columns.iter().any(|there| there == column.name.as_str());
                is_there.then_some((*role, column))
            });
            let Some((role, column)) = changed else { continue };
            let (severity, how) = if index.partial {
                (Severity::Warning, "may be")
            } else {
                (Severity::Error, "is")
            };
            let problem = format!(
                "the relay changes {} with its claims and verdicts, which the unique index {} over ({}) refuses as soon as two \
                 rows become equal, and then an event {how} published again and again; {}",
                column.name,
                index.name,
                index.columns.join(", "),
                if role == Role::Version {
                    "it is not the row's own version, so take it out of the map"
                } else {
                    "map another column, or make the index one without it"
                }
            );
            self.note(severity, format!("columns.{role}"), problem, None);
        }
    }

    /// Rows are delivered in this order over the whole table.
    fn given_order(&mut self, live: &LiveTable) {
        let seq = self
            .map
            .column(Role::Seq)
            .filter(|_| self.map.order().contains(&Role::Seq));
        let Some(column) = seq.and_then(|seq| live.column(seq.name.as_str())) else {
            return;
        };
        if !column.generated {
            let problem = format!(
                "the database does not give {}; if it is counted per aggregate, rows of new aggregates go before older ones of \
                 others: order by created_at and id instead",
                column.name
            );
            self.note(Severity::Warning, "order".to_owned(), problem, None);
        }
    }

    /// Rows of one transaction have the time at which it began, unless they are given another one.
    fn order_within_transactions(&mut self, live: &LiveTable) {
        let column = |role: &Role| live.column(self.map.column(*role)?.name.as_str());
        let has = |column: &LiveColumn, words: &[&str]| {
            let default = column.default.as_deref().unwrap_or_default().to_ascii_lowercase();
            words.iter().any(|word| default.contains(word))
        };
        let order: Vec<_> = self.map.order().iter().filter_map(column).collect();
        let [time, id] = order[..] else { return };
        let begun = ["now()", "current_timestamp", "transaction_timestamp"];
        let random = ["random_uuid", "uuid_generate_v4"];
        if self.map.has(Role::OrderingKey) && has(time, &begun) && has(id, &random) {
            let problem = format!(
                "rows of one key that one transaction writes have the same {time}, which is by default the time at which it \
                 began, and {id} is random by default: they may be delivered in any order; let the default of {time} be \
                 clock_timestamp(), or order by a column that counts",
                time = time.name,
                id = id.name
            );
            self.note(Severity::Warning, "order".to_owned(), problem, None);
        }
    }

    /// Claims ask for rows of some states in the table's order.
    fn claim_order(&mut self, live: &LiveTable) {
        let names = |role: &Role| self.map.column(*role).map(|column| column.name.as_str());
        let (Some(status), order) = (
            names(&Role::Status),
            self.map.order().iter().filter_map(names).collect::<Vec<_>>(),
        ) else {
            return;
        };
        let first = order.first().copied().unwrap_or_default();
        let begins = |with: &[&str]| {
            live.indexes
                .iter()
                .any(|index| with.len() <= index.columns.len() && with.iter().zip(&index.columns).all(|(a, b)| a == b))
        };
        let partial = live
            .indexes
            .iter()
            .any(|index| index.partial && index.columns.first().is_some_and(|column| column == first));
        // One that begins with the status has the rows of each state in their order, but not those of two states.
        let several = self.map.claimable_labels().len() > 1;
        let can_choose = self.database.has_partial_indexes();
        if partial || (!several && begins(&[status, first])) || (several && !can_choose && begins(&[status])) {
            return;
        }
        let cost = if begins(&[status]) {
            "every claim sorts all rows that wait, which takes long when many do"
        } else {
            "every claim reads the whole table"
        };
        let (columns, only) = if several && can_choose {
            (order, self.ddl.only_open(status))
        } else {
            ([&[status][..], &order].concat(), String::new())
        };
        let problem = format!(
            "there is no index on ({}){only}, so {cost}{}",
            columns.join(", "),
            self.in_part(live, &columns)
        );
        let fix = self.ddl.index_on(live, "claim", &columns, &only);
        self.note(Severity::Warning, "order".to_owned(), problem, fix);
    }

    /// What has to be done before these columns can be indexed, if anything has.
    fn in_part(&self, live: &LiveTable, columns: &[&str]) -> String {
        self.ddl.cannot_index(live, columns).map_or_else(String::new, |column| {
            format!("; the database indexes only a part of {column}, so make that a varchar first")
        })
    }
}
