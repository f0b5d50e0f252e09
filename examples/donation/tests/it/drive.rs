//! The service on a real MariaDB, with a row changed by hand, a receiver that stumbles and a relay that is killed.

use std::process::Command;

use crate::support;

/// Points are conserved, every donation has one history row and one event, every event was told of or is in the
/// dead-letter table with its reason, and the rows of the relay that died were taken back.
///
/// Proves D2, D5 and D10.
#[test]
fn the_books_balance_after_a_bad_day() {
    if support::left_out() {
        return;
    }
    let drive = Command::new(env!("CARGO_BIN_EXE_donation"))
        .arg("drive")
        .output()
        .expect("the service can be run");
    let books = String::from_utf8_lossy(&drive.stdout);
    assert!(
        drive.status.success() && books.contains("The books balance"),
        "{books}\n{}",
        String::from_utf8_lossy(&drive.stderr)
    );
}
