//! A file as publisher.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::publisher::{ErrorKind, ErrorScope, LeaseCheck, Outcome, Place};
use posthaste_core::{Batch, Message, Publisher, Report};
use posthaste_publishers::{FileOptions, FilePublisher};
use serde_json::Value;

use crate::support;
use crate::support::{message, publish, publish_without_lease};

struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("events.jsonl")
    }

    fn open(&self) -> FilePublisher {
        FilePublisher::open(FileOptions::new(self.path())).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// The `data` of each line that is an event.
    fn data(&self) -> Vec<Value> {
        let events = self.lines();
        let events = events
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.map(|mut event| event["data"].take()).collect()
    }
}

fn numbered(keys: &[&str]) -> Vec<Message> {
    let numbered = keys.iter().enumerate();
    numbered.map(|(n, key)| message(key, &n.to_string())).collect()
}

#[tokio::test]
async fn each_message_is_a_cloud_event_on_a_line_in_order() {
    let scene = Scene::new();
    let publisher = scene.open();
    let messages = numbered(&["a", "b", "a", ""]);
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 4]);
    assert_eq!(scene.data(), [0, 1, 2, 3]);
    let first: Value = serde_json::from_str(&scene.lines()[0]).unwrap();
    assert_eq!(first["specversion"], "1.0");
    assert_eq!(first["id"], messages[0].id.to_string());
    assert_eq!(first["partitionkey"], "a");
    assert_eq!(first["topic"], "t");
    assert_eq!(publisher.name(), "file");
}

#[tokio::test]
async fn a_check_names_what_is_missing_and_changes_nothing() {
    let scene = Scene::new();
    let path = scene.directory.path().join("mount").join("events.jsonl");
    fs::create_dir(path.parent().unwrap()).unwrap();
    let publisher = FilePublisher::open(FileOptions::new(&path)).unwrap();
    fs::write(&path, "half a li").unwrap();
    assert_eq!(publisher.check().await.unwrap(), format!("file {}", path.display()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "half a li");

    fs::remove_file(&path).unwrap();
    publisher.check().await.expect("the next batch begins a new one");
    assert!(!path.exists(), "a check creates nothing");

    fs::remove_dir(path.parent().unwrap()).unwrap();
    let missing = publisher.check().await.unwrap_err();
    assert_eq!(
        (missing.kind, missing.scope.clone()),
        (ErrorKind::Transport, ErrorScope::Broker)
    );
    let text = missing.to_string();
    let (file, directory) = (path.display(), path.parent().unwrap().display());
    assert!(text.contains(&format!("cannot append to {file}: ")), "{text}");
    assert!(text.ends_with(&format!("create the directory {directory}")), "{text}");

    fs::write(path.parent().unwrap(), "").unwrap();
    let text = publisher.check().await.unwrap_err().to_string();
    assert!(text.ends_with(&format!("create the directory {directory}")), "{text}");
}

#[tokio::test]
async fn what_was_written_survives_a_reopening() {
    let scene = Scene::new();
    publish(&scene.open(), &numbered(&["a", "b"])).await;
    publish(&scene.open(), &numbered(&["c"])).await;
    assert_eq!(scene.data(), [0, 1, 0]);
}

#[tokio::test]
async fn a_line_that_a_crash_cut_off_is_ended_at_opening() {
    let scene = Scene::new();
    fs::write(scene.path(), "{\"id\": 1}\n{\"id\": ").unwrap();
    let publisher = scene.open();
    assert_eq!(scene.lines(), ["{\"id\": 1}", "{\"id\": "]);
    publish(&publisher, &numbered(&["a"])).await;
    assert_eq!(scene.lines().len(), 3);
    assert_eq!(scene.data()[1], 0);
}

#[tokio::test]
async fn a_line_that_another_process_cut_off_does_not_swallow_the_next() {
    let scene = Scene::new();
    let publisher = scene.open();
    publish(&publisher, &numbered(&["a"])).await;
    let half = [fs::read(scene.path()).unwrap(), b"{\"half\"".to_vec()].concat();
    fs::write(scene.path(), half).unwrap();
    publish(&publisher, &numbered(&["a", "a"])).await;
    assert_eq!(scene.data(), [0, 0, 1]);
}

#[tokio::test]
async fn another_process_is_given_time_to_end_its_line() {
    let scene = Scene::new();
    let publisher = scene.open();
    let mut other = File::options().append(true).open(scene.path()).unwrap();
    other.lock().unwrap();
    other.write_all(b"{\"data\": ").unwrap();
    let messages = numbered(&["a"]);
    let mut publishing = pin!(publish(&publisher, &messages));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut publishing).await;
    assert!(early.is_err(), "the batch waits for the lock");
    other.write_all(b"7}\n").unwrap();
    other.unlock().unwrap();
    assert_eq!(publishing.await, [Outcome::DELIVERED]);
    assert_eq!(scene.data(), [7, 0]);
}

#[tokio::test]
async fn a_lock_that_is_never_given_up_is_told_rather_than_waited_for() {
    let scene = Scene::new();
    let publisher = scene.open();
    let other = File::options().append(true).open(scene.path()).unwrap();
    other.lock().unwrap();
    let outcomes = publish(&publisher, &numbered(&["a"])).await;
    let Outcome::Failed(error) = &outcomes[0] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(error.kind, ErrorKind::Transport);
    assert!(error.message.contains("another process holds its lock"), "{error}");
    let options = FileOptions::new(scene.path());
    let at_start = FilePublisher::open(options).unwrap_err();
    assert!(
        at_start.to_string().contains("another process holds its lock"),
        "{at_start}"
    );
    other.unlock().unwrap();
    assert_eq!(publish(&publisher, &numbered(&["a"])).await, [Outcome::DELIVERED]);
}

/// Its own wait may outlast the lease.
#[tokio::test]
async fn what_may_be_sent_is_asked_after_the_wait_for_another_process() {
    struct Until(Arc<AtomicBool>);
    impl LeaseCheck for Until {
        fn may_send(&self, _: Place) -> bool {
            !self.0.load(Ordering::Relaxed)
        }
    }
    let scene = Scene::new();
    let publisher = scene.open();
    let other = File::options().append(true).open(scene.path()).unwrap();
    other.lock().unwrap();
    let (over, outcomes) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let sink = Arc::clone(&outcomes);
    let report = Report::new(move |_, outcome| sink.lock().unwrap().push(outcome));
    let batch = Batch::new(
        support::deliveries(&numbered(&["a"])),
        Arc::new(Until(Arc::clone(&over))),
    );
    let mut publishing = pin!(publisher.publish(batch, report));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut publishing).await;
    assert!(early.is_err(), "the batch waits for the lock");
    over.store(true, Ordering::Relaxed);
    other.unlock().unwrap();
    publishing.await;
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::NotAttempted]);
    assert_eq!(scene.lines(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_do_not_interleave() {
    let scene = Scene::new();
    let publishers = [scene.open(), scene.open()];
    let batches = (0..40).map(|batch: usize| {
        let publisher = publishers[batch % 2].clone();
        tokio::spawn(async move {
            let messages: Vec<_> = (0..50)
                .map(|n| message("", &format!("{{\"batch\":{batch},\"n\":{n}}}")))
                .collect();
            assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 50]);
        })
    });
    for batch in batches.collect::<Vec<_>>() {
        batch.await.unwrap();
    }
    let data = scene.data();
    assert_eq!(data.len(), 2000);
    for lines in data.chunks(50) {
        assert!(lines.iter().all(|line| line["batch"] == lines[0]["batch"]));
        assert!(lines.iter().enumerate().all(|(n, line)| line["n"] == n));
    }
}

#[tokio::test]
async fn what_may_not_be_sent_is_not_written_nor_is_the_rest_of_its_lane() {
    let scene = Scene::new();
    let messages = numbered(&["a", "a", "a", "", "b"]);
    let outcomes = publish_without_lease(&scene.open(), &messages, &[1, 3]).await;
    let (ok, not) = (|| Outcome::DELIVERED, || Outcome::NotAttempted);
    assert_eq!(outcomes, [ok(), not(), not(), not(), ok()]);
    assert_eq!(scene.data(), [0, 4]);
}

#[tokio::test]
async fn a_batch_that_cannot_be_written_fails_by_lane_and_the_next_goes_through() {
    let scene = Scene::new();
    let publisher = scene.open();
    fs::remove_file(scene.path()).unwrap();
    fs::create_dir(scene.path()).unwrap();
    let outcomes = publish(&publisher, &numbered(&["a", "a", "", "b", ""])).await;
    for head in [0, 2, 3, 4] {
        let Outcome::Failed(error) = &outcomes[head] else {
            panic!("{outcomes:?}")
        };
        assert_eq!((error.kind, &error.scope), (ErrorKind::Transport, &ErrorScope::Broker));
        assert!(error.message.contains("events.jsonl"), "{error}");
        assert!(error.message.ends_with("give the path of a plain file"), "{error}");
    }
    assert_eq!(outcomes[1], Outcome::NotAttempted);

    fs::remove_dir(scene.path()).unwrap();
    assert_eq!(publish(&publisher, &numbered(&["a"])).await, [Outcome::DELIVERED]);
    assert_eq!(scene.data(), [0]);
}

#[tokio::test]
async fn the_topic_of_a_line_is_the_messages_own() {
    let scene = Scene::new();
    let disguised = message("a", "0").header("topic", "another").header("Top-ic", "third");
    publish(&scene.open(), &[disguised]).await;
    let line = scene.lines().remove(0);
    assert_eq!(line.matches("topic").count(), 1, "{line}");
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["topic"], "t");
}

/// A disk of 64 kB, if this process may mount one.
#[cfg(target_os = "linux")]
pub struct SmallDisk(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl SmallDisk {
    pub fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "posthaste-test"])
            .arg(directory.path())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(directory));
        }
        eprintln!("skipped: only root may mount a small disk");
        None
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

/// On a disk that is full nothing is torn, and nothing is there twice once there is room again.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_a_matter_of_the_way_and_leaves_whole_lines_only() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.path().join("events.jsonl");
    let filler = disk.0.path().join("filler");
    fs::write(&filler, vec![0; 32 * 1024]).unwrap();
    let publisher = FilePublisher::open(FileOptions::new(&path)).unwrap();
    let messages = |from: usize| -> Vec<Message> {
        let text = |n: usize| format!("{{\"n\":{n},\"filler\":\"{}\"}}", "x".repeat(1_000));
        (from..from + 10).map(|n| message(&n.to_string(), &text(n))).collect()
    };
    let numbers = || -> Vec<u64> {
        let text = fs::read_to_string(&path).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| event["data"]["n"].as_u64().unwrap()).collect()
    };
    let mut written = 0;
    let refused = loop {
        assert!(written < 1_000, "the disk does not fill up");
        let outcomes = publish(&publisher, &messages(written)).await;
        if outcomes != vec![Outcome::DELIVERED; 10] {
            break outcomes;
        }
        written += 10;
    };
    assert!(written > 0);
    for outcome in &refused {
        let Outcome::Failed(error) = outcome else {
            panic!("{refused:?}")
        };
        assert_eq!((error.kind, &error.scope), (ErrorKind::Transport, &ErrorScope::Broker));
        assert!(error.message.contains("free some space"), "{error}");
    }
    assert!(
        numbers().into_iter().eq(0..written as u64),
        "only what was delivered, and all of it whole"
    );
    publish(&publisher, &messages(written)).await;
    assert!(
        numbers().into_iter().eq(0..written as u64),
        "a second attempt leaves nothing behind either"
    );
    fs::remove_file(filler).unwrap();
    assert_eq!(
        publish(&publisher, &messages(written)).await,
        vec![Outcome::DELIVERED; 10]
    );
    assert!(numbers().into_iter().eq(0..written as u64 + 10));
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_begun_anew() {
    let scene = Scene::new();
    let publisher = scene.open();
    publish(&publisher, &numbered(&["a", "b"])).await;
    fs::rename(scene.path(), scene.directory.path().join("events.1")).unwrap();
    publish(&publisher, &numbered(&["c"])).await;
    assert_eq!(scene.data(), [0]);
}

#[test]
fn a_missing_directory_is_named_and_not_made() {
    let scene = Scene::new();
    let missing = scene.directory.path().join("missing");
    let error = FilePublisher::open(FileOptions::new(missing.join("events.jsonl"))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("missing/events.jsonl"), "{text}");
    assert!(
        text.ends_with(&format!("create the directory {}", missing.display())),
        "{text}"
    );
    assert!(!missing.exists());
}

#[test]
fn what_is_not_a_plain_file_is_refused() {
    let error = FilePublisher::open(FileOptions::new(Path::new("/dev/null"))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot append to /dev/null: it is not a plain file; give the path of a plain file"
    );
}

#[test]
fn settings_have_a_safe_default_and_refuse_unknown_keys() {
    let options: FileOptions = serde_json::from_str(r#"{"path": "x"}"#).unwrap();
    assert_eq!(options, FileOptions::new("x"));
    assert!(options.fsync);
    assert!(serde_json::from_str::<FileOptions>(r#"{"path": "x", "fsink": false}"#).is_err());
}
