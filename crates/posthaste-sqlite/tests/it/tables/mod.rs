//! The conformance suite on existing tables. Each line at the end runs all cases that the table allows;
//! the snapshots say which those are.

mod mapped;

use mapped::{Made, Tables};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BuiltinMap, Database};
use posthaste_testkit::{Need, ddl, everything};

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

fn builtin_map(name: &str) -> TableMap {
    BuiltinMap::find(name).unwrap().map().unwrap()
}

/// The way of claiming has a table already that runs the slow cases.
const QUICK: &[Need] = &[Need::Engine];

suite_on!(usage: Usage, builtin_map("usage"), ddl(&builtin_map("usage"), Database::Sqlite), without QUICK);
suite_on!(donation: Donation, builtin_map("donation"), ddl(&builtin_map("donation"), Database::Sqlite), without QUICK);
suite_on!(everything: Everything, everything(), ddl(&everything(), Database::Sqlite), without QUICK);
