//! What processes have used, as /proc says.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The kernel's unit of processor time, on every Linux that we know of.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time of a process and of its children that have ended.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    stat(pid).map_or(Duration::ZERO, |stat| stat.cpu)
}

/// Processor time of a process and all below it, ended ones included.
pub(crate) fn tree_cpu_time(root: u32) -> Duration {
    let children = all_pids().filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == root));
    cpu_time(root) + children.map(tree_cpu_time).sum::<Duration>()
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> anyhow::Result<u32> {
    stat(pid)
        .map(|stat| stat.parent)
        .with_context(|| format!("there is no process {pid} here"))
}

/// The most memory that a process has had, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

struct Stat {
    parent: u32,
    cpu: Duration,
}

fn stat(pid: u32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&stat)
}

/// The name may have spaces and brackets; everything after the last bracket is a number each.
fn parse(stat: &str) -> Option<Stat> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 2..].split(' ').collect();
    // User and system, then the same of children that were waited for.
    let ticks: u64 = fields
        .get(11..15)?
        .iter()
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        cpu: Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND),
    })
}

fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_read_past() {
        let line = "7 (a) b (c)) S 3 7 7 0 -1 4194304 100 0 0 0 150 50 20 5 20 0 1 0 1 1 1 1";
        let stat = parse(line).unwrap();
        assert_eq!(stat.parent, 3);
        assert_eq!(stat.cpu, Duration::from_millis(2_250));
    }
}
