//! A file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::Publisher;
use posthaste_publishers::{FileOptions, FilePublisher};
use posthaste_testkit::publishing::{left_out, names_in};
use posthaste_testkit::{Ability, Counterpart, Disturbance};
use serde_json::Value;

use super::beside;
use crate::file::SmallDisk;

struct Lines {
    disk: Disk,
    publisher: Arc<dyn Publisher>,
    /// Held by what is another process to the publisher.
    lock: Mutex<Option<File>>,
}

enum Disk {
    Plain(tempfile::TempDir),
    Small(SmallDisk),
}

impl Disk {
    fn path(&self) -> &Path {
        match self {
            Self::Plain(directory) => directory.path(),
            Self::Small(disk) => disk.path(),
        }
    }
}

fn publisher(path: PathBuf) -> Arc<dyn Publisher> {
    Arc::new(FilePublisher::open(FileOptions::new(path)).unwrap())
}

impl Lines {
    fn path(&self) -> PathBuf {
        self.disk.path().join("there/events.jsonl")
    }

    fn gone(&self) -> PathBuf {
        self.disk.path().join("gone")
    }

    fn filler(&self) -> PathBuf {
        self.disk.path().join("filler")
    }
}

impl Counterpart for Lines {
    fn lacks() -> &'static [(Ability, &'static str)] {
        &[
            (Ability::Refuse, "a file takes every line"),
            (Ability::Panic, "no code of others runs"),
            (Ability::Throttle, "a file asks nobody to wait"),
            (Ability::Limit, "a line may be of any size"),
            (Ability::Check, "it does not look at the file"),
        ]
    }

    async fn fresh(needs: &[Ability]) -> Option<Self> {
        let disk = if needs.contains(&Ability::Full) {
            Disk::Small(SmallDisk::mount()?)
        } else {
            Disk::Plain(tempfile::tempdir().unwrap())
        };
        fs::create_dir(disk.path().join("there")).unwrap();
        Some(Self {
            publisher: publisher(disk.path().join("there/events.jsonl")),
            disk,
            lock: Mutex::default(),
        })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::clone(&self.publisher)
    }

    fn answer_within(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn arrived(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "a torn line");
        for line in text.lines() {
            serde_json::from_str::<Value>(line).expect("a whole line");
        }
        names_in(&text)
    }

    async fn disturb(&self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Silence => {
                let file = File::options().append(true).open(self.path()).unwrap();
                file.lock().unwrap();
                *self.lock.lock().unwrap() = Some(file);
            }
            Disturbance::Death => fs::rename(self.path().parent().unwrap(), self.gone()).unwrap(),
            Disturbance::Full => {
                let mut filler = File::create(self.filler()).unwrap();
                while filler.write_all(&[0; 1024]).is_ok() {}
            }
            Disturbance::Throttle(_) => unreachable!("it is lacked"),
        }
    }

    async fn recover(&self) {
        self.lock.lock().unwrap().take();
        if self.gone().exists() {
            fs::rename(self.gone(), self.path().parent().unwrap()).unwrap();
        }
        if self.filler().exists() {
            fs::remove_file(self.filler()).unwrap();
        }
    }

    fn beside_a_dead_one(&self) -> (Arc<dyn Publisher>, String) {
        let directory = self.disk.path().join("dead");
        fs::create_dir(&directory).unwrap();
        let dead = publisher(directory.join("events.jsonl"));
        fs::remove_dir_all(directory).unwrap();
        beside(dead, self.publisher())
    }
}

posthaste_testkit::publisher_suite!(Lines);

#[test]
fn what_is_left_out() {
    insta::assert_snapshot!(left_out::<Lines>());
}
