use std::{
    ffi::OsStr,
    os::unix::process::CommandExt,
    process::{Child, Stdio},
};

use crate::{Error, Result, account::Account};

/// A small process that outlives us, whatever ends us, and then cleans up.
///
/// `Drop` does not run after Ctrl-C, after `kill -9`, or for a `static`. The guard blocks on a pipe of which we hold
/// the only writing end, so it wakes up exactly when our process is gone.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Runs the shell script `clean_up` with `args` as `$1`, `$2` … once this process has ended.
    pub(crate) fn set<A: AsRef<OsStr>>(
        account: &Account,
        clean_up: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        account
            .command("sh")
            .args(["-c", &format!("read -r never; {clean_up}"), "sh"])
            .args(args)
            .current_dir("/")
            .stdin(Stdio::piped())
            // Whoever reads our output must not have to wait for the guard.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is sent to the whole group, and must reach us only.
            .process_group(0)
            .spawn()
            .map(Self)
            .map_err(Error::io("start a guard process"))
    }

    #[cfg(test)]
    pub(crate) fn pretend_that_we_died(mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
