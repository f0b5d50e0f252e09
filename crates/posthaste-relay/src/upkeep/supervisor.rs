//! Watches the tasks of a relay: if one of them panics the relay ends, instead of going on without it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// Clones watch together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supervisor {
    broken: CancellationToken,
    task: Arc<Mutex<Option<&'static str>>>,
}

impl Supervisor {
    /// Does some work of the relay under watch.
    pub(crate) async fn watch<T>(self, task: &'static str, work: impl Future<Output = T>) -> T {
        let _watch = Watch { supervisor: self, task };
        work.await
    }

    /// Resolves when a task has panicked.
    pub(crate) async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// The first task that has panicked.
    pub(crate) fn culprit(&self) -> Option<&'static str> {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Watch {
    supervisor: Supervisor,
    task: &'static str,
}

impl Drop for Watch {
    /// Runs while the panic unwinds the task, and also when the task ends well or is dropped.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut task = self.supervisor.task.lock().unwrap_or_else(PoisonError::into_inner);
            task.get_or_insert(self.task);
            drop(task);
            self.supervisor.broken.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_noticed_and_an_end_is_not() {
        let supervisor = Supervisor::default();
        tokio::spawn(supervisor.clone().watch("ending", async {}))
            .await
            .unwrap();
        let endless = tokio::spawn(supervisor.clone().watch("endless", std::future::pending::<()>()));
        endless.abort();
        endless.await.unwrap_err();
        assert_eq!(supervisor.culprit(), None);
        let panics = supervisor.clone().watch("panicking", async { panic!("as scripted") });
        tokio::spawn(panics).await.unwrap_err();
        supervisor.broken().await;
        assert_eq!(supervisor.culprit(), Some("panicking"));
    }
}
