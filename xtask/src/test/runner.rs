//! Runs programs with tests, and listens to them.

use std::{
    path::Path,
    process::{Command, ExitStatus},
    sync::Mutex,
    thread,
};

use super::{
    listener::{Heard, Listener},
    times,
};
use crate::process;

/// How many programs run at a time. Most of them end with a few tests that wait for something, while the machine is idle.
pub(super) const AT_A_TIME: usize = 2;

/// How a command ended, and what its tests said.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) command: String,
    pub(super) status: ExitStatus,
    pub(super) heard: Heard,
}

/// Runs tests in plain sight.
pub(super) fn show(tests: Command) -> anyhow::Result<Ended> {
    run(tests, |line| print!("{line}"))
}

/// Runs several programs at a time, and shows what each of them printed when it has ended. Says how each ended, in the order
/// of the programs.
pub(super) fn show_side_by_side(programs: Vec<Command>) -> anyhow::Result<Vec<Ended>> {
    let waiting = Mutex::new(programs.into_iter().enumerate());
    let next = || waiting.lock().ok()?.next();
    let lane = || {
        let mut ended = Vec::new();
        while let Some((place, program)) = next() {
            let mut printed = String::new();
            let run = run(program, |line| printed.push_str(line));
            print!("{printed}");
            ended.push((place, run));
        }
        ended
    };
    let mut ended: Vec<_> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(lane)).collect();
        let ended = lanes
            .into_iter()
            .map(|lane| lane.join().expect("a lane does not panic"));
        ended.flatten().collect()
    });
    ended.sort_by_key(|(place, _)| *place);
    ended.into_iter().map(|(_, ended)| ended).collect()
}

fn run(mut tests: Command, mut print: impl FnMut(&str)) -> anyhow::Result<Ended> {
    let mut listener = Listener::new(Path::new(tests.get_program()), times::threads(&tests));
    let status = process::run_told(&mut tests, |line| {
        print(line);
        listener.hear(line);
    })?;
    Ok(Ended {
        command: process::shown(&tests),
        status,
        heard: listener.end(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn programs_run_side_by_side_and_are_told_apart() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let ready = dir.path().join("ready");
        // The first ends only because the second runs beside it.
        let wait = format!("while [ ! -e {} ]; do sleep 0.01; done; exit 3", ready.display());
        let ended = show_side_by_side(vec![
            script(&wait),
            script(&format!("touch {}", ready.display())),
            script("printf 'running 1 test\\n\\nfailures:\\n    shop\\n\\ntest result: FAILED. 0 passed\\n'; exit 101"),
        ])?;
        let codes: Vec<_> = ended.iter().map(|ended| ended.status.code()).collect();
        assert_eq!(codes, [Some(3), Some(0), Some(101)]);
        let failed: Vec<_> = ended.iter().map(|ended| ended.heard.failures.len()).collect();
        assert_eq!(failed, [0, 0, 1]);
        Ok(())
    }
}
