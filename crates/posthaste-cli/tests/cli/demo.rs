//! The demonstration keeps what it promises.

use crate::support::Place;

/// Proves B7.
#[test]
fn nothing_is_lost_invented_or_out_of_order_through_crashes_and_an_outage() {
    let ran = Place::empty().run(&["demo", "--seconds", "3", "--json"]).success();
    let report = ran.json();
    for count in ["lost", "invented", "order_violations", "dead"] {
        assert_eq!(report[count], 0, "{report}");
    }
    assert!(
        report["committed"].as_u64() > Some(0) && report["rolled_back"].as_u64() > Some(0),
        "{report}"
    );
    assert_eq!(report["delivered"], report["committed"]);
    let mut fields: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "committed",
        "dead",
        "delivered",
        "duplicates",
        "invented",
        "lost",
        "order_violations",
        "p50_ms",
        "p99_ms",
        "rolled_back",
        "throughput_per_s",
    ];
    assert_eq!(fields, expected);
    for event in ["relay killed", "sink down"] {
        assert!(ran.stderr.contains(event), "{ran:?}");
    }
}
