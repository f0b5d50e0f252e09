//! The report as Markdown.

use std::fmt::Write;

use crate::arm;
use crate::brokers::SinkKind;
use crate::goals::{Goal, Limit};
use crate::output::number::{count, number};
use crate::output::setting::Setting;
use crate::results::Results;
use crate::series::Series;
use crate::suites::drain;

/// All of it.
pub(super) fn report(setting: &Setting, results: &Results, goals: &[Goal], plots: &[(String, String)]) -> String {
    let mut out = String::new();
    write_all(&mut out, setting, results, goals, plots).expect("a String takes all that is written");
    out
}

fn write_all(
    out: &mut String,
    setting: &Setting,
    results: &Results,
    goals: &[Goal],
    plots: &[(String, String)],
) -> std::fmt::Result {
    let extent = if setting.quick {
        "`--quick`: short runs, which show that the benchmarks work and not how fast anything is"
    } else {
        "a full run"
    };
    writeln!(
        out,
        "{extent}; {} round(s), {} build; {}; PostgreSQL: {}.\n",
        setting.rounds, setting.build, setting.machine, setting.postgres
    )?;
    write_goals(out, goals)?;
    for sink in [SinkKind::Null, SinkKind::Mock, SinkKind::Kafka] {
        write_drains(out, results, sink)?;
    }
    for (title, file) in plots {
        writeln!(out, "![{title}](benchmarks/{file})\n")?;
    }
    write_others(out, results)?;
    for (title, lines) in [("Runs without a number", &results.void), ("Not run", &results.not_run)] {
        if !lines.is_empty() {
            writeln!(out, "### {title}\n")?;
            for line in lines {
                writeln!(out, "- {}", line.replace('\n', " "))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn write_goals(out: &mut String, goals: &[Goal]) -> std::fmt::Result {
    writeln!(out, "### Goals\n")?;
    writeln!(out, "| | goal | measured | |\n|---|---|---|---|")?;
    for goal in goals {
        let limit = match goal.limit {
            Limit::AtLeast(limit) => format!("≥ {}", number(limit)),
            Limit::AtMost(limit) => format!("≤ {}", number(limit)),
            Limit::None => "–".to_owned(),
        };
        let measured = match (goal.measured, goal.spread) {
            (Some(median), Some(spread)) => with_spread(median, spread),
            _ => "–".to_owned(),
        };
        let verdict = match goal.reached {
            Some(true) => "pass",
            Some(false) => "**short**",
            None if goal.measured.is_some() => "for comparison",
            None => "not measured",
        };
        writeln!(out, "| {} | {limit} | {measured} | {verdict} |", goal.what)?;
    }
    writeln!(out)
}

fn write_drains(out: &mut String, results: &Results, sink: SinkKind) -> std::fmt::Result {
    let value = |arm: &str, measure| results.find(drain::SUITE, &drain::subject(arm, sink), measure);
    let arms: Vec<_> = arm::all()
        .into_iter()
        .filter(|arm| value(arm.name, drain::SPEED).is_some())
        .collect();
    if arms.is_empty() {
        return Ok(());
    }
    writeln!(out, "### Drain, PostgreSQL → {}\n", sink.title())?;
    writeln!(
        out,
        "| | rows | messages/s | CPU s per 100 k: relay | PostgreSQL | brokers | peak MiB | WAL bytes | dead tuples |\n\
         |---|---|---|---|---|---|---|---|---|"
    )?;
    for arm in arms {
        write!(out, "| {} (`{}`) |", arm.title, arm.name)?;
        let of = |measure| value(arm.name, measure).and_then(Series::median);
        write!(out, " {} |", of(drain::ROWS).map_or_else(|| "–".to_owned(), count))?;
        write!(out, " {} |", shown(value(arm.name, drain::SPEED)))?;
        for measure in [
            drain::RELAY_CPU,
            drain::POSTGRES_CPU,
            drain::BROKER_CPU,
            drain::MEMORY,
            drain::WAL,
            drain::DEAD_TUPLES,
        ] {
            write!(out, " {} |", of(measure).map_or_else(|| "–".to_owned(), number))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn write_others(out: &mut String, results: &Results) -> std::fmt::Result {
    let others: Vec<_> = results
        .figures
        .iter()
        .filter(|figure| figure.suite != drain::SUITE)
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    writeln!(out, "### Other benchmarks\n")?;
    writeln!(out, "| benchmark | | measured | |\n|---|---|---|---|")?;
    for figure in others {
        let values = shown(Some(&figure.values));
        writeln!(
            out,
            "| {} | {} | {values} | {} |",
            figure.suite, figure.subject, figure.measure
        )?;
    }
    writeln!(out)
}

fn shown(series: Option<&Series>) -> String {
    match series.and_then(|series| Some((series.median()?, series.spread()?))) {
        Some((median, spread)) => with_spread(median, spread),
        None => "–".to_owned(),
    }
}

fn with_spread(median: f64, (least, most): (f64, f64)) -> String {
    if number(least) == number(most) {
        number(median)
    } else {
        format!("{} ({} to {})", number(median), number(least), number(most))
    }
}
