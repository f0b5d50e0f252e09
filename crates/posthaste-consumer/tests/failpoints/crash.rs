//! A process that dies between the handler's commit and the offset's.

use std::process::{Command, Stdio};

use crate::support::{BRIEF_SESSION_TIMEOUT, Running, World};

const WORLD: &str = "POSTHASTE_CONSUMER_CRASH_WORLD";

/// The process that dies; it is this test binary, run again with this test alone.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test below, as a process of its own"]
async fn the_process_that_dies() {
    let Ok(names) = std::env::var(WORLD) else { return };
    let _points = fail::FailScenario::setup();
    let world = World {
        session_timeout: BRIEF_SESSION_TIMEOUT,
        ..World::again(&names).await
    };
    let running = Running::start(world.counting());
    drop(running.end().await);
}

/// The third event's effect is committed and the process dies before any offset of its batch is. All of it comes again, to
/// another process, and has its effect once.
///
/// Proves pitfall 20.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_handled_but_not_committed_comes_again_without_a_second_effect() {
    let Some(world) = World::new(1).await else { return };
    let sales: Vec<_> = (0..10).map(|n| (world.sale("a", n), 0)).collect();
    world.send_all(&sales).await;
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "crash::the_process_that_dies"])
        .env(WORLD, world.names())
        .env("FAILPOINTS", "after_handler_commit=2*off->return")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = tokio::task::spawn_blocking(move || process.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(6),
        "it aborted: {status}"
    );
    assert_eq!(world.effects().await.len(), 3);
    let committed = world.committed(0).await.unwrap_or_default();
    assert!(committed < 3, "the third was not committed, but {committed}");

    let running = Running::start(world.counting());
    world.until_committed(0, 10).await;
    let report = running.stop().await;
    assert_eq!(i64::try_from(report.duplicates).unwrap(), 3 - committed);
    let numbers: Vec<i64> = world.effects().await.into_iter().map(|(_, n)| n).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
}
