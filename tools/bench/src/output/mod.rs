//! The figures as JSON, as Markdown and as plots.

mod markdown;
mod number;
mod setting;
mod svg;

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

pub(crate) use self::setting::Setting;
use crate::arm::{self, Arm};
use crate::brokers::SinkKind;
use crate::goals::Goal;
use crate::results::Results;
use crate::suites::{drain, latency};

/// Writes everything into a directory and returns the Markdown.
pub(crate) fn write(dir: &Path, setting: &Setting, results: &Results, goals: &[Goal]) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        setting: &'a Setting,
        goals: &'a [Goal],
        #[serde(flatten)]
        results: &'a Results,
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let document = Document {
        setting,
        goals,
        results,
    };
    save(dir, "results.json", &serde_json::to_string_pretty(&document)?)?;
    let mut plots = Vec::new();
    for sink in [SinkKind::Null, SinkKind::Mock, SinkKind::Kafka] {
        let bars = drain_bars(results, sink);
        if !bars.is_empty() {
            let name = format!("drain-{}.svg", sink.title().to_lowercase().replace(' ', "-"));
            let title = format!("Messages per second, PostgreSQL → {}", sink.title());
            save(dir, &name, &svg::bars(&title, &bars))?;
            plots.push((title, name));
        }
    }
    let bars = latency_bars(results);
    if !bars.is_empty() {
        let title = "Milliseconds from commit to acknowledgement by the mock broker";
        save(dir, "latency.svg", &svg::bars(title, &bars))?;
        plots.push((title.to_owned(), "latency.svg".to_owned()));
    }
    let text = markdown::report(setting, results, goals, &plots);
    save(dir, "report.md", &text)?;
    Ok(text)
}

fn save(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn drain_bars(results: &Results, sink: SinkKind) -> Vec<svg::Bar> {
    let bar = |arm: Arm| {
        let series = results.find(drain::SUITE, &drain::subject(arm.name, sink), drain::SPEED)?;
        svg::Bar::of(arm.title, series, arm.name == "log")
    };
    let mut bars: Vec<_> = arm::all().into_iter().filter_map(bar).collect();
    bars.sort_by(|a, b| b.median.total_cmp(&a.median));
    bars
}

fn latency_bars(results: &Results) -> Vec<svg::Bar> {
    let mut bars = Vec::new();
    for arm in ["log", "queue"] {
        for load in latency::LOADS {
            for measure in [latency::P50, latency::P99] {
                let subject = latency::subject(arm, load);
                let series = results.find(latency::SUITE, &subject, measure);
                let label = format!("{subject}, {}", measure.trim_end_matches(" ms"));
                bars.extend(series.and_then(|series| svg::Bar::of(&label, series, arm == "log")));
            }
        }
    }
    bars
}
