//! The result, for people and for programs.

use std::io::{Write, stdout};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::oracle::{Committed, compare};
use super::sink::Delivered;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    committed: u64,
    rolled_back: u64,
    delivered: u64,
    duplicates: u64,
    lost: u64,
    invented: u64,
    order_violations: u64,
    dead: u64,
    throughput_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Report {
    pub(super) fn new(committed: &[Committed], rolled_back: u64, deliveries: &[Delivered], dead: u64) -> Self {
        let findings = compare(committed, deliveries);
        let latencies = &findings.latencies_micros;
        Self {
            committed: committed.len() as u64,
            rolled_back,
            delivered: findings.delivered,
            duplicates: findings.duplicates,
            lost: findings.lost,
            invented: findings.invented,
            order_violations: findings.order_violations,
            dead,
            throughput_per_s: throughput(findings.delivered, deliveries),
            p50_ms: millis(latencies, 50),
            p99_ms: millis(latencies, 99),
        }
    }

    /// What must not be, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        let faults: Vec<_> = [
            ("lost", self.lost),
            ("invented", self.invented),
            ("out of order", self.order_violations),
            ("dead", self.dead),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
        (!faults.is_empty()).then(|| faults.join(", "))
    }

    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        for (name, value) in [
            ("committed", self.committed.to_string()),
            ("rolled back", self.rolled_back.to_string()),
            ("delivered", self.delivered.to_string()),
            ("duplicates", self.duplicates.to_string()),
            ("lost", self.lost.to_string()),
            ("invented", self.invented.to_string()),
            ("order violations", self.order_violations.to_string()),
            ("dead", self.dead.to_string()),
            ("throughput", format!("{:.0} /s", self.throughput_per_s)),
            ("commit to delivery, p50", format!("{:.1} ms", self.p50_ms)),
            ("commit to delivery, p99", format!("{:.1} ms", self.p99_ms)),
        ] {
            table.add_row([name.to_owned(), value]);
        }
        if let Some(values) = table.column_mut(1) {
            values.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")?;
        if self.fault().is_none() {
            writeln!(
                out,
                "Every committed order was delivered, in order, through two crashes and an outage. Duplicates are what a \
                 crash\nbetween sending and noting costs; consumers drop them by id."
            )?;
        }
        Ok(())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times of a demonstration are small"
)]
fn throughput(delivered: u64, deliveries: &[Delivered]) -> f64 {
    let times = || deliveries.iter().map(|delivery| delivery.at_micros);
    let micros = times().max().unwrap_or_default() - times().min().unwrap_or_default();
    round(delivered as f64 * 1e6 / (micros.max(1) as f64))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times of a demonstration are small"
)]
fn millis(ascending: &[u64], percent: usize) -> f64 {
    let place = (ascending.len() * percent).div_ceil(100).saturating_sub(1);
    round(ascending.get(place).copied().unwrap_or_default() as f64 / 1e3)
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let latencies: Vec<u64> = (1..=200).map(|n| n * 1_000).collect();
        assert_eq!((millis(&latencies, 50), millis(&latencies, 99)), (100.0, 198.0));
        assert_eq!((millis(&[7_000], 50), millis(&[], 99)), (7.0, 0.0));
    }
}
