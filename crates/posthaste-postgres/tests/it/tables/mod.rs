//! The conformance suite on existing tables. Each line at the end runs all cases that the table allows;
//! the snapshots say which those are.

mod by_event;
mod log;
mod mapped;

use log::Log;
use mapped::{Made, Tables};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BuiltinMap, Database, Role};
use posthaste_testkit::{Need, ddl, everything};

/// Without a column for the time of the next attempt.
const UNSCHEDULED: &[(&str, &str)] = &[(
    "circuit::one_message_that_breaks_the_connection_does_not_stop_the_others",
    "a table that cannot say when a message is next due cannot postpone it, so it is the first trial every time",
)];

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

suite_on!(usage: Usage, builtin_map("usage"), builtin("usage").ddl.to_owned(), without QUICK);
suite_on!(donation: Donation, builtin_map("donation"), ddl(&builtin_map("donation"), Database::Postgres), without QUICK);
suite_on!(logistics: Logistics, builtin_map("logistics"), builtin("logistics").ddl.to_owned(), without &[]);
suite_on!(order_service: OrderService, builtin_map("order-service"), builtin("order-service").ddl.to_owned(), without &[], except UNSCHEDULED);
suite_on!(everything: Everything, everything(), ddl(&everything(), Database::Postgres), without QUICK);
suite_on!(everything_locked: EverythingLocked, without_leases(), ddl(&without_leases(), Database::Postgres), without QUICK);

/// A log has a store of its own. What it cannot have by nature is told by `Queue`: rows that are changed.
mod commerce {
    use super::*;

    posthaste_testkit::conformance_suite!(Log);

    #[test]
    fn some_cases_are_not_for_it() {
        insta::assert_snapshot!(posthaste_testkit::suite::left_out::<Log>());
    }
}
