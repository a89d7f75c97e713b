//! Monitors, alerts and the dashboard: they read what is served, and lead to what is documented.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};

use super::helm::{NO_CONTROLLER, Objects, Render, SIDECAR, read};
use crate::metrics;

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

const RULES: &str = "metrics.prometheusRule.enabled=true";

/// Metrics of API servers, which the alerts and the dashboard use beside stowplan's own.
const OF_THE_API_SERVER: [&str; 2] = [
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_admission_duration_seconds_bucket",
];

/// The names of the samples that are served, and the labels of each.
fn samples() -> BTreeMap<String, BTreeSet<String>> {
    let text = metrics::to_text();
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.split("=\"").filter_map(|part| part.rsplit(['"', ',']).next());
        let labels = labels.filter(|label| !label.is_empty() && *label != "}").map(str::to_owned);
        samples.entry(name.to_owned()).or_insert_with(BTreeSet::new).extend(labels);
    }
    assert!(samples["stowplan_controller_writes_total"].contains("outcome"), "{samples:?}");
    samples
}

/// The metrics in an expression, each of which is served, with the labels that it is asked for.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let served = samples();
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let (own, foreign): (BTreeSet<_>, BTreeSet<_>) = words
        .filter(|word| {
            ["stowplan_", "process_", "apiserver_"].iter().any(|of| word.starts_with(of))
        })
        .map(str::to_owned)
        .partition(|word| !word.starts_with("apiserver_"));
    assert!(!own.is_empty() || !foreign.is_empty(), "{expression}");
    assert!(foreign.iter().all(|name| OF_THE_API_SERVER.contains(&&**name)), "{expression}");
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

/// The rules of the release `stowplan`.
fn rules(render: &Render) -> Vec<Value> {
    let rule: Value = render.objects().get("PrometheusRule", "stowplan");
    let [group] = &rule["spec"]["groups"].as_array().expect("groups")[..] else { panic!("{rule}") };
    group["rules"].as_array().expect("rules").clone()
}

/// The documented metrics have the types and labels of those that are served, one row each.
#[test]
fn the_metrics_listed_have_their_types_and_labels() {
    let text = metrics::to_text();
    let samples = samples();
    let mut served = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
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
        assert!(meaning.len() > 10, "{row}");
        let row = (kind.to_string(), labels);
        assert_eq!(listed.insert(name.trim_matches('`').to_owned(), row), None, "{name} twice");
    }
    assert_eq!(listed, served);
}

/// One row of the documented alerts.
#[derive(Debug, PartialEq)]
struct Alert {
    name: String,
    expression: String,
    lasts: Option<String>,
    runbook: String,
}

#[test]
fn the_alerts_are_those_of_the_documentation() {
    let documented: Vec<Alert> = OPERATIONS
        .lines()
        .filter(|line| line.starts_with("| `Stowplan"))
        .map(|line| {
            // A bar in an expression is escaped for the table.
            let line = line.replace(r"\|", "\0");
            let cells: Vec<_> = line.split(" | ").map(|cell| cell.replace('\0', "|")).collect();
            let code = |cell: &str| cell.split('`').nth(1).map(str::to_owned);
            let anchor = cells[3].split("](#").nth(1).expect("a link to a runbook");
            Alert {
                name: code(&cells[0]).expect("a name"),
                expression: code(&cells[2]).expect("an expression"),
                lasts: cells[2].split("` for `").nth(1).map(|it| it.trim_end_matches('`').into()),
                runbook: anchor.split(')').next().expect("an end").to_owned(),
            }
        })
        .collect();
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).expect("YAML");
    let page = format!(
        "{}/blob/v{}/docs/operations.md#",
        chart["home"].as_str().expect("a home"),
        chart["appVersion"].as_str().expect("a version"),
    );
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let rendered: Vec<Alert> = rules(&Render::defaults().set(RULES))
        .iter()
        .map(|rule| Alert {
            name: text(&rule["alert"]).expect("a name"),
            expression: text(&rule["expr"]).expect("an expression"),
            lasts: text(&rule["for"]),
            runbook: text(&rule["annotations"]["runbook_url"])
                .and_then(|url| url.strip_prefix(&page).map(str::to_owned))
                .unwrap_or_else(|| panic!("{rule} is not on {page}")),
        })
        .collect();
    assert_eq!(rendered, documented);
    assert!(rendered.len() >= 10, "{rendered:?}");
    for alert in &rendered {
        let is_heading = |line: &str| {
            let words = line.strip_prefix("### ").unwrap_or_default().to_lowercase();
            words.replace(' ', "-") == alert.runbook
        };
        assert!(OPERATIONS.lines().any(is_heading), "{alert:?} has no runbook");
        metrics_of(&alert.expression);
    }
}

#[test]
fn without_a_controller_no_alert_waits_for_one() {
    let with = rules(&Render::defaults().set(RULES));
    let without = rules(&Render::defaults().set_all(&[RULES, NO_CONTROLLER]));
    let of_controller = |rule: &&Value| {
        rule["expr"].as_str().expect("an expression").contains("stowplan_controller_")
    };
    assert_eq!(without.iter().filter(of_controller).count(), 0, "{without:?}");
    assert_eq!(with.len(), without.len() + with.iter().filter(of_controller).count());
}

/// The dashboard shows every metric that is served, and no other.
#[test]
fn the_dashboard_shows_every_metric() {
    let objects = Render::defaults().set("metrics.dashboard.enabled=true").objects();
    let map: ConfigMap = objects.get("ConfigMap", "stowplan-dashboard");
    assert_eq!(map.metadata.labels.expect("labels")["grafana_dashboard"], "1");
    let data = map.data.expect("data");
    let dashboard: Value = serde_json::from_str(&data["stowplan.json"]).expect("JSON");
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
    let served: BTreeSet<_> = samples()
        .into_keys()
        .filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"))
        .collect();
    assert_eq!(shown, served);
}

/// Each ServiceMonitor selects one Service, which has one Deployment's pods and their ports.
#[test]
fn a_service_monitor_reads_each_pod_once() {
    for (values, components) in [
        (&[][..], &["webhook", "controller"][..]),
        (&[SIDECAR], &["webhook"]),
        (&[NO_CONTROLLER], &["webhook"]),
    ] {
        let objects = Render::defaults()
            .set_all(&[
                "metrics.serviceMonitor.enabled=true",
                r#"metrics.serviceMonitor.labels={"a": "b"}"#,
            ])
            .set_all(values)
            .objects();
        let services: Vec<Service> = of_kind(&objects, "Service");
        let monitors: Vec<Value> = of_kind(&objects, "ServiceMonitor");
        assert_eq!(monitors.len(), components.len());
        for component in components {
            let name = format!("stowplan-{component}");
            let monitor: Value = objects.get("ServiceMonitor", &name);
            assert_eq!(monitor["metadata"]["labels"]["a"], "b");
            let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels");
            let is_selected = |service: &&Service| {
                let labels = json!(service.metadata.labels);
                wanted.iter().all(|(key, value)| labels[key] == *value)
            };
            let [service] = services.iter().filter(is_selected).collect::<Vec<_>>()[..] else {
                panic!("{monitor} selects not exactly one Service");
            };
            let spec = service.spec.as_ref().expect("a spec");
            assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
            assert_eq!(spec.publish_not_ready_addresses, Some(true));
            let deployment: Deployment = objects.get("Deployment", &name);
            let deployment = deployment.spec.expect("a spec");
            assert_eq!(spec.selector, deployment.selector.match_labels);
            // The admin port of each container of the pod.
            let pod = deployment.template.spec.expect("a spec");
            let of_pod: Vec<_> = pod
                .containers
                .iter()
                .flat_map(|it| it.ports.iter().flatten().filter_map(|port| port.name.clone()))
                .filter(|name| name.ends_with("admin"))
                .collect();
            let ports = spec.ports.as_ref().expect("ports");
            let targets: Vec<_> = ports.iter().map(|it| json!(it.target_port)).collect();
            assert_eq!(json!(targets), json!(of_pod));
            let read: Vec<_> =
                ports.iter().map(|it| json!({"port": it.name, "path": "/metrics"})).collect();
            assert_eq!(monitor["spec"]["endpoints"], json!(read));
        }
    }
}

/// A Service's name has 63 characters at most.
#[test]
fn the_longest_release_has_services_with_valid_names() {
    let name = "a-release-with-a-name-of-the-greatest-length-that-is-allowed-in-x";
    let objects = Render::defaults()
        .set_all(&[
            &format!("fullnameOverride={:?}", &name[..55]),
            "metrics.serviceMonitor.enabled=true",
        ])
        .objects();
    let services: Vec<Service> = of_kind(&objects, "Service");
    let names: BTreeSet<_> = services.into_iter().filter_map(|it| it.metadata.name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
}

fn of_kind<T: serde::de::DeserializeOwned>(objects: &Objects, kind: &str) -> Vec<T> {
    let names = objects.0.keys().filter(|(it, _)| it == kind).map(|(_, name)| name);
    names.map(|name| objects.get(kind, name)).collect()
}
