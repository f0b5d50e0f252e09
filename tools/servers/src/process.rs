use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::{Error, Result};

const STEP: Duration = Duration::from_millis(20);

/// A server's process with a directory of its own, which notes its process id there, for whoever comes after us.
#[derive(Debug)]
pub(crate) struct Process {
    dir: PathBuf,
    /// Present if it was we who started it. Then nobody else can collect its exit status.
    child: Mutex<Option<Child>>,
}

impl Process {
    /// The process of that directory, whether it runs or not.
    pub(crate) fn of(dir: PathBuf) -> Self {
        let child = Mutex::new(None);
        Self { dir, child }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// All that the process has printed, in all its lives.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn start(&self, command: &mut Command) -> Result<()> {
        let log = self
            .open_log()
            .map_err(Error::io(format!("open {}", self.log().display())))?;
        let log_too = log.try_clone().map_err(Error::io("duplicate a file handle"))?;
        command
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            // Ctrl-C is sent to the whole group, and it is for us to decide what it means.
            .process_group(0);
        let program = command.get_program().display().to_string();
        let mut slot = self.child();
        let child = slot.insert(command.spawn().map_err(Error::io(format!("start {program}")))?);
        fs::write(self.note(), child.id().to_string()).map_err(Error::io(format!("write {}", self.note().display())))
    }

    pub(crate) fn is_alive(&self) -> bool {
        match self.child().as_mut() {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => self.noted_pid().is_some_and(|pid| self.is_ours(pid)),
        }
    }

    /// Sends the signal and waits until the process is gone. Does nothing if it is not running.
    pub(crate) fn end(&self, signal: Signal, timeout: Duration) -> Result<()> {
        if self.is_alive() {
            if let Some(pid) = self.pid() {
                // It may have ended by itself in the meantime.
                let _ = signal::kill(pid, signal);
            }
            let deadline = Instant::now() + timeout;
            while self.is_alive() {
                if Instant::now() > deadline {
                    return Err(self.failed(&format!("kill -{signal}")));
                }
                thread::sleep(STEP);
            }
        }
        // The guard kills whom it finds noted, and by then the number may be somebody else's.
        let _ = fs::remove_file(self.note());
        Ok(())
    }

    /// An error with the end of the log.
    pub(crate) fn failed(&self, command: &str) -> Error {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        Error::Failed {
            command: format!("{command} (in {})", self.dir.display()),
            output: lines[lines.len().saturating_sub(30)..].join("\n"),
        }
    }

    fn open_log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.log())
    }

    fn note(&self) -> PathBuf {
        self.dir.join("pid")
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        let ours = self.child().as_ref().and_then(|child| i32::try_from(child.id()).ok());
        ours.map(Pid::from_raw).or_else(|| self.noted_pid())
    }

    fn noted_pid(&self) -> Option<Pid> {
        fs::read_to_string(self.note()).ok()?.parse().ok().map(Pid::from_raw)
    }

    /// The number alone proves nothing: after a while it is given to another process.
    fn is_ours(&self, pid: Pid) -> bool {
        if !Path::new("/proc/self").exists() {
            return signal::kill(pid, None).is_ok();
        }
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir == self.dir)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks again and again until the answer is yes. `false` if that took longer than `timeout`, or if `give_up` says so.
pub(crate) fn wait_until(
    timeout: Duration,
    mut ready: impl FnMut() -> bool,
    mut give_up: impl FnMut() -> bool,
) -> bool {
    let deadline = Instant::now() + timeout;
    while !ready() {
        if give_up() || Instant::now() > deadline {
            return false;
        }
        thread::sleep(STEP);
    }
    true
}
