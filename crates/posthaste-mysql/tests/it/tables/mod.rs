//! The conformance suite on existing tables. Each line at the end runs all cases that the table allows;
//! the snapshots say which those are.

mod mapped;

use mapped::{Made, Tables};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BuiltinMap, Database, Role};
use posthaste_testkit::{Need, ddl, everything};

/// Without a column for the time of the next attempt.
const UNSCHEDULED: &[(&str, &str)] = &[(
    "circuit::one_message_that_breaks_the_connection_does_not_stop_the_others",
    "a table that cannot say when a message is next due cannot postpone it, so it is the first trial every time",
)];

/// Without a table for dedupe keys, whose rows are locked in one order.
const UNIQUE_INDEX: (&str, &str) = (
    "dedupe::races_for_several_keys_in_any_order_do_not_deadlock",
    "the server finds a deadlock between inserts that wait for each other's keys in a unique index",
);

macro_rules! suite_on {
    ($module:ident: $tables:ident, $map:expr, $ddl:expr, without $without:expr $(, except $except:expr)?) => {
        struct $tables;

        impl Tables for $tables {
            const WITHOUT: &[Need] = $without;
            $(const EXCEPT: &[(&str, &str)] = $except;)?

            fn map() -> TableMap {
                $map
            }

            fn ddl() -> String {
                $ddl
            }
        }

        mod $module {
            use super::*;

            posthaste_testkit::conformance_suite!(Made<$tables>);

            #[test]
            fn some_cases_are_not_for_it() {
                insta::assert_snapshot!(posthaste_testkit::suite::left_out::<Made<$tables>>());
            }
        }
    };
}

fn builtin(name: &str) -> &'static BuiltinMap {
    BuiltinMap::find(name).unwrap()
}

fn builtin_map(name: &str) -> TableMap {
    builtin(name).map().unwrap()
}

/// Every role, but no leases: rows are locked while they are published.
fn without_leases() -> TableMap {
    [Role::LockedBy, Role::LeaseToken, Role::LockedUntil, Role::LockedAt]
        .into_iter()
        .fold(everything(), TableMap::without)
}

/// The way of claiming has a table already that runs the slow cases.
const QUICK: &[Need] = &[Need::Engine];

/// Its times are whole seconds, and each of its rows says how often it may be tried.
const DONATION: &[Need] = &[Need::Engine, Need::FineTimes, Need::RelayLimit];

suite_on!(usage: Usage, builtin_map("usage"), ddl(&builtin_map("usage"), Database::MySql), without QUICK, except &[UNIQUE_INDEX]);
suite_on!(donation: Donation, builtin_map("donation"), builtin("donation").ddl.to_owned(), without DONATION);
suite_on!(logistics: Logistics, builtin_map("logistics"), ddl(&builtin_map("logistics"), Database::MySql), without &[]);
suite_on!(order_service: OrderService, builtin_map("order-service"), ddl(&builtin_map("order-service"), Database::MySql), without &[], except UNSCHEDULED);
suite_on!(everything: Everything, everything(), ddl(&everything(), Database::MySql), without QUICK, except &[UNIQUE_INDEX]);
suite_on!(everything_locked: EverythingLocked, without_leases(), ddl(&without_leases(), Database::MySql), without QUICK, except &[UNIQUE_INDEX]);
