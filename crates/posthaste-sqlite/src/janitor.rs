//! Who looks after an existing table, which has no place to say so: the lock of a file beside the database, which the
//! operating system ends with its holder.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use posthaste_core::StoreError;
use posthaste_core::integrity::ContentHash;
use posthaste_core::store::{LeadRequest, Leadership, WorkerId};
use posthaste_sql::table::Table;
use uuid::Uuid;

use crate::SqliteStore;

/// What relays of this process look after, by the file that is locked.
#[derive(Debug, Default)]
pub(crate) struct JanitorLocks(Mutex<HashMap<PathBuf, Held>>);

#[derive(Debug)]
struct Held {
    worker: WorkerId,
    /// A worker that vanished without a word is followed then by another one of this process.
    until: Instant,
    /// Locked as long as it is open.
    #[expect(dead_code, reason = "to have it open is what it is for")]
    file: File,
}

impl JanitorLocks {
    fn held(&self) -> MutexGuard<'_, HashMap<PathBuf, Held>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SqliteStore {
    /// Takes the lock, or keeps it. A database in memory has no other process.
    pub(crate) fn lock_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        let Some(path) = self.janitor_file(request) else {
            return Ok(Leadership::Held);
        };
        let mut locks = self.janitor_locks.held();
        let now = Instant::now();
        let until = now + request.lease;
        if let Some(held) = locks.get_mut(&path) {
            let left = held.until.saturating_duration_since(now);
            if held.worker != request.worker && !left.is_zero() {
                let worker = held.worker.as_uuid();
                return Ok(Leadership::HeldBy { worker, left });
            }
            (held.worker, held.until) = (request.worker, until);
            return Ok(Leadership::Held);
        }
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(StoreError::other)?;
        match file.try_lock() {
            Ok(()) => {
                let worker = request.worker;
                locks.insert(path, Held { worker, until, file });
                Ok(Leadership::Held)
            }
            Err(TryLockError::WouldBlock) => {
                let (worker, left) = (Uuid::nil(), request.lease);
                Ok(Leadership::HeldBy { worker, left })
            }
            Err(TryLockError::Error(error)) => Err(StoreError::other(error)),
        }
    }

    /// Gives back what a relay looked after.
    pub(crate) fn unlock_janitor(&self, worker: WorkerId) {
        self.janitor_locks.held().retain(|_, held| held.worker != worker);
    }

    /// A file of its own: the database's own locks come and go with its connections.
    fn janitor_file(&self, request: &LeadRequest) -> Option<PathBuf> {
        let options = self.pool.connect_options();
        let database = options.get_filename();
        if !database.is_file() {
            return None;
        }
        let table = self
            .map
            .table(Table::Outbox)
            .map(ToString::to_string)
            .unwrap_or_default();
        let hash = ContentHash::of(&[table.as_bytes(), b"/", request.key().as_bytes()]).to_string();
        let mut path = database.as_os_str().to_owned();
        path.push(format!(
            "-posthaste-janitor-{}",
            hash.chars().take(8).collect::<String>()
        ));
        Some(path.into())
    }
}
