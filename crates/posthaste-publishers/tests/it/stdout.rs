//! Standard output as publisher, seen from the other end of a pipe.

use std::process::Command;

use posthaste_core::publisher::Outcome;
use posthaste_publishers::Stdout;
use serde_json::Value;

use crate::support::{message, publish};

const BATCHES: usize = 20;
const LINES: usize = 50;

#[test]
fn each_batch_is_a_run_of_lines_that_nothing_interrupts() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stdout::prints_for_its_parent", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let text = String::from_utf8(child.stdout).unwrap();
    // The test runner prints too, and never begins a line with a brace.
    let events: Vec<Value> = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), BATCHES * LINES);
    for batch in events.chunks(LINES) {
        let name = &batch[0]["partitionkey"];
        assert!(batch.iter().all(|event| event["partitionkey"] == *name));
        assert!(batch.iter().enumerate().all(|(n, event)| event["data"] == n));
        assert!(batch.iter().all(|event| event["topic"] == "t"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "run by the test above in a process of its own"]
async fn prints_for_its_parent() {
    println!();
    let batches: Vec<_> = (0..BATCHES)
        .map(|batch| {
            tokio::spawn(async move {
                let messages: Vec<_> = (0..LINES)
                    .map(|n| message(&format!("batch {batch}"), &n.to_string()))
                    .collect();
                // A publisher each, so that only the process's own lock holds them apart.
                assert_eq!(
                    publish(&Stdout::new(), &messages).await,
                    vec![Outcome::DELIVERED; LINES]
                );
            })
        })
        .collect();
    for batch in batches {
        batch.await.unwrap();
    }
}
