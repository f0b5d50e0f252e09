//! The shop on real servers, with relays, brokers and a consumer killed under load.

use std::process::Command;

/// Whether the test runner said that a server is not on this machine.
fn left_out() -> bool {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    let needs = ["postgres", "kafka", "redis"];
    let left_out = without.split(',').any(|server| needs.contains(&server));
    if left_out {
        eprintln!("NOT RUN: this test needs PostgreSQL, Apache Kafka and Redis");
    }
    left_out
}

/// Likes, sales and views are counted exactly as committed, product by product; what is sold out is not shown from the
/// cache; the one poison event is in its dead-letter topic.
///
/// Proves C15 and C18.
#[test]
fn the_books_balance_after_a_bad_day() {
    if left_out() {
        return;
    }
    let drive = Command::new(env!("CARGO_BIN_EXE_commerce"))
        .args(["drive", "--seconds", "40", "--outage", "10"])
        .output()
        .expect("the shop can be run");
    let books = String::from_utf8_lossy(&drive.stdout);
    assert!(
        drive.status.success() && books.contains("The books balance"),
        "{books}\n{}",
        String::from_utf8_lossy(&drive.stderr)
    );
}
