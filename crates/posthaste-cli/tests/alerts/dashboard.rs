//! The shipped dashboard, and that what it and the rules name is there.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use crate::promql::metrics;
use crate::receiver::{free_port, orders_to};
use crate::support::Place;
use crate::watch::{Watched, prometheus, query};

fn dashboard() -> Value {
    let printed = Place::empty().run(&["grafana", "print"]).success().stdout;
    serde_json::from_str(&printed).unwrap()
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

fn expressions(dashboard: &Value) -> Vec<String> {
    let targets = panels(dashboard).iter().filter_map(|panel| panel["targets"].as_array());
    let expressions = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap().to_owned());
    expressions.collect()
}

/// The expression as Grafana sends it, for all jobs and namespaces.
fn as_sent(expression: &str) -> String {
    expression
        .replace("$__rate_interval", "5s")
        .replace("$job", ".*")
        .replace("$namespace", ".*")
}

#[test]
fn panels_have_titles_places_and_the_data_source_that_is_chosen() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["datasource", "job", "namespace"]);
    let (mut ids, mut places) = (HashSet::new(), HashSet::new());
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(
            !title.is_empty() && ids.insert(panel["id"].as_u64().unwrap()),
            "{title}"
        );
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{title}");
        let cells = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
        assert!(cells.into_iter().all(|cell| places.insert(cell)), "{title} overlaps");
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in [panel].into_iter().chain(targets) {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_is_on_a_relay() {
    let Some(prometheus) = prometheus() else { return };
    let place = Place::with_sqlite().migrated();
    // One destination is unavailable, so that there is something to say of it.
    place.write("posthaste.toml", &orders_to(free_port()));
    let lines = ["orders", "payments"].map(|topic| format!("{{\"topic\": \"{topic}\", \"payload\": 1}}\n").repeat(10));
    place.run_with_input(&["enqueue", "--stdin"], &lines.concat()).success();
    let relay = Watched::start(prometheus, "complete", place, [""; 0]);
    let dashboard = dashboard();
    let expressions = expressions(&dashboard);
    let rules = include_str!("../../assets/alerts.yml").lines();
    let rules: Vec<_> = rules.filter(|line| !line.starts_with('#')).collect();
    let named: BTreeSet<_> = expressions
        .iter()
        .map(String::as_str)
        .chain(rules)
        .flat_map(metrics)
        .collect();
    assert!(named.len() > 40, "{named:?}");

    let is_there = |metric: &&str| {
        let found = query(prometheus, &format!("count({metric}{{job=\"complete\"}})"));
        !found.is_empty()
    };
    let mut missing = named.clone();
    relay.eventually("it has delivered and counted", || {
        missing.retain(|metric| !is_there(metric));
        missing.is_empty() || {
            println!("still missing: {missing:?}");
            false
        }
    });

    for expression in &expressions {
        let is_condition = expression.ends_with("> 0");
        relay.eventually(expression, || {
            !query(prometheus, &as_sent(expression)).is_empty() || is_condition
        });
    }
}
