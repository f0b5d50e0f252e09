//! Running other programs in plain sight.

use std::{
    io::{self, BufRead, BufReader},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};

/// Shows the command, runs it with our own input and output, and says how it ended.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<ExitStatus> {
    let line = shown(command);
    eprintln!("+ {line}");
    command.status().with_context(|| format!("cannot run `{line}`"))
}

/// The same, but each line that it prints, with its end, is handed over and not shown.
pub(crate) fn run_told(command: &mut Command, mut hear: impl FnMut(&str)) -> anyhow::Result<ExitStatus> {
    let line = shown(command);
    eprintln!("+ {line}");
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn();
    // The command holds the pipe's other end too, and would keep it open.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut child = child.with_context(|| format!("cannot run `{line}`"))?;
    let lines = lines_of(reader);
    let mut status = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => hear(&String::from_utf8_lossy(&line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            // What it started may live on and hold the pipe forever; it has nothing to say to us.
            Err(mpsc::RecvTimeoutError::Timeout) if status.is_some() => break,
            Err(mpsc::RecvTimeoutError::Timeout) => status = child.try_wait()?,
        }
    }
    match status {
        Some(status) => Ok(status),
        None => Ok(child.wait()?),
    }
}

/// The lines of a pipe, each with its end, as they come.
fn lines_of(pipe: io::PipeReader) -> mpsc::Receiver<Vec<u8>> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            match pipe.read_until(b'\n', &mut line) {
                Ok(1..) if sender.send(line).is_ok() => {}
                _ => break,
            }
        }
    });
    lines
}

/// The same as [`run`], for a command that must succeed.
pub(crate) fn demand(command: &mut Command) -> anyhow::Result<()> {
    let status = run(command)?;
    ensure!(status.success(), "`{}` failed: {status}", shown(command));
    Ok(())
}

/// Whether a program ends well. What it prints is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
