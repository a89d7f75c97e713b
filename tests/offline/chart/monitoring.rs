//! Monitors, alerts and the dashboard: they read what is served, and lead to what is documented.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::helm::{objects, read};
use crate::metrics;

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// Metrics of API servers, which the alerts and the dashboard use beside stowplan's own.
const OF_THE_API_SERVER: [&str; 2] = [
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_admission_duration_seconds_bucket",
];

/// The names of the samples that are served, and the labels of each.
fn samples() -> BTreeMap<String, BTreeSet<String>> {
    let mut samples = BTreeMap::new();
    for line in metrics::to_text().lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.split("=\"").filter_map(|part| part.rsplit(['"', ',']).next());
        let labels = labels.filter(|label| !label.is_empty() && *label != "}").map(str::to_owned);
        samples.entry(name.to_owned()).or_insert_with(BTreeSet::new).extend(labels);
    }
    assert!(samples["stowplan_controller_writes_total"].contains("outcome"), "{samples:?}");
    samples
}

/// stowplan's metrics in an expression, each of which is served with the labels that it is asked for.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let served = samples();
    let is_metric =
        |word: &&str| ["stowplan_", "process_", "apiserver_"].iter().any(|of| word.starts_with(of));
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut own: BTreeSet<_> = words.filter(is_metric).map(str::to_owned).collect();
    assert!(!own.is_empty(), "{expression}");
    own.retain(|name| !OF_THE_API_SERVER.contains(&&**name));
    for name in &own {
        let labels = served.get(name).unwrap_or_else(|| panic!("{name} is not among {served:?}"));
        let grouped = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        let matched = expression.split(['{', ',']).skip(1).filter_map(|part| {
            let (label, _) = part.trim_start().split_once('=')?;
            label.chars().all(|c| c.is_ascii_lowercase()).then_some(label)
        });
        for label in grouped.chain(matched) {
            // Prometheus itself adds the namespace.
            let is_served = labels.contains(label) || ["namespace", "le"].contains(&label);
            assert!(is_served, "{name} has no label {label}: {expression}");
        }
    }
    own
}

/// The documented metrics have the types and labels of those that are served, one row each.
#[test]
fn the_metrics_listed_have_their_types_and_labels() {
    let samples = samples();
    let mut served = BTreeMap::new();
    for line in metrics::to_text().lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (family, kind) = line.split_once(' ').expect("a type");
        let (name, sample) = match kind {
            "counter" => (format!("{family}_total"), format!("{family}_total")),
            "info" => (format!("{family}_info"), format!("{family}_info")),
            "histogram" => (family.to_owned(), format!("{family}_count")),
            _ => (family.to_owned(), family.to_owned()),
        };
        served.insert(name, (kind.to_owned(), samples[&sample].clone()));
    }
    let mut listed = BTreeMap::new();
    let is_metric =
        |line: &&str| line.starts_with("| `stowplan_") || line.starts_with("| `process_");
    for row in OPERATIONS.lines().filter(is_metric) {
        let cells: Vec<&str> = row.trim_matches('|').split(" |").map(str::trim).collect();
        let [name, kind, labels, meaning] = &cells[..] else { panic!("{row}") };
        let labels: BTreeSet<_> = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(!meaning.is_empty(), "{row}");
        let row = (kind.to_string(), labels);
        assert_eq!(listed.insert(name.trim_matches('`').to_owned(), row), None, "{name} twice");
    }
    assert_eq!(listed, served);
}

/// Each row of the documented alerts, with its runbook, is an alert that is rendered.
#[test]
fn the_alerts_are_those_of_the_documentation() {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).expect("YAML");
    let [home, version] = ["home", "appVersion"].map(|field| chart[field].as_str().expect(field));
    let mut documented = Vec::new();
    for line in OPERATIONS.lines().filter(|line| line.starts_with("| `Stowplan")) {
        // A bar in an expression is escaped for the table.
        let line = line.replace(r"\|", "\0");
        let cells: Vec<_> = line.split(" | ").map(|cell| cell.replace('\0', "|")).collect();
        let name = cells[0].split('`').nth(1).expect("a name");
        let expression = cells[2].split('`').nth(1).expect("an expression");
        let lasts = cells[2].split("` for `").nth(1).map(|it| it.trim_end_matches('`'));
        let anchor = cells[3].split("](#").nth(1).and_then(|rest| rest.split(')').next());
        let anchor = anchor.expect("a link to a runbook");
        let page = format!("{home}/blob/v{version}/docs/operations.md#{anchor}");
        documented.push(json!([name, expression, lasts, page]));
        let is_runbook = |line: &str| {
            let heading = line.strip_prefix("### ").unwrap_or_default();
            heading.to_lowercase().replace(' ', "-") == anchor
        };
        assert!(OPERATIONS.lines().any(is_runbook), "{name} has no runbook");
        metrics_of(expression);
    }
    let rules = objects(&["metrics.prometheusRule.enabled=true"]).get("PrometheusRule", "stowplan");
    let rules = rules["spec"]["groups"][0]["rules"].as_array().expect("rules").iter().map(|rule| {
        json!([rule["alert"], rule["expr"], rule["for"], rule["annotations"]["runbook_url"]])
    });
    let rendered: Vec<Value> = rules.collect();
    assert_eq!(rendered, documented);
}

/// The dashboard shows every metric that is served, and no other.
#[test]
fn the_dashboard_shows_every_metric() {
    let map = objects(&["metrics.dashboard.enabled=true"]).get("ConfigMap", "stowplan-dashboard");
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let dashboard = map["data"]["stowplan.json"].as_str().expect("a dashboard");
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let side = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                assert!(x < 24 && cells.insert((x, y)), "{panel} is over another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|it| it.ends_with('.')), "{panel}");
        for target in panel["targets"].as_array().expect("targets") {
            assert_eq!(target["datasource"]["uid"], "$datasource", "{panel}");
            shown.extend(metrics_of(target["expr"].as_str().expect("an expression")));
        }
    }
    let mut served: BTreeSet<_> = samples().into_keys().collect();
    served.retain(|name| !name.ends_with("_sum") && !name.ends_with("_count"));
    assert_eq!(shown, served);
}

/// A Service's name has 63 characters at most.
#[test]
fn the_longest_release_has_services_with_valid_names() {
    let name = format!("fullnameOverride={:?}", "a-long-name".repeat(5));
    let objects = objects(&[&name, "metrics.serviceMonitor.enabled=true"]);
    let services = objects.of_kind("Service");
    assert_eq!(services.len(), 3);
    assert!(services.iter().all(|(name, _)| name.len() <= 63), "{:?}", objects.0.keys());
}
