//! `helm upgrade --reuse-values`: Helm takes the values of the installed chart in place of the
//! defaults of the new one, so each value that was added since is absent.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::helm::{CA, CHART, Render, read, stdout};
use super::values::{leaves, older, values};

/// This chart with the values of the older one, as Helm takes them.
fn reused() -> (tempfile::TempDir, Render) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    stdout(Command::new("cp").args(["-R", &format!("{CHART}/.")]).arg(folder.path()));
    fs::write(folder.path().join("values.yaml"), include_str!("values/9cdd524.yaml")).unwrap();
    let render = Render::of(folder.path().to_str().expect("text")).set(CA);
    (folder, render)
}

/// All that is rendered with the defaults is rendered. Only values that the older chart had stay as
/// they were: the node selector, and the webhook's request of memory.
#[test]
fn values_of_the_older_chart_give_what_the_defaults_give() {
    let (_folder, render) = reused();
    let objects = &render.objects().0;
    let mut defaults = Render::defaults().objects().0.clone();
    for object in defaults.values_mut() {
        let memory = "/spec/template/spec/containers/0/resources/requests/memory";
        if object["metadata"]["name"] == "stowplan-webhook"
            && let Some(memory) = object.pointer_mut(memory)
        {
            *memory = json!("32Mi");
        }
        for place in ["/spec/template/spec", "/spec"] {
            if let Some(spec) = object.pointer_mut(place).and_then(Value::as_object_mut) {
                spec.remove("nodeSelector");
            }
        }
    }
    assert!(objects.keys().eq(defaults.keys()), "{:?}", objects.keys());
    for (key, object) in &defaults {
        assert_eq!(&objects[key], object, "{key:?}");
    }
}

/// A user who reuses the values may set a new one, whose neighbours are then absent still.
#[test]
fn one_value_of_a_new_group_is_enough() {
    let (_folder, render) = reused();
    let render = render.set_all(&[
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "metrics.dashboard.enabled=true",
        r#"serviceAccount.annotations={"example.com/role": "reader"}"#,
        r#"webhook.service.annotations={"example.com/mesh": "none"}"#,
        "webhook.numaPolicy.enabled=false",
    ]);
    let objects = render.objects();
    assert!(objects.has("ServiceMonitor") && objects.has("PrometheusRule"));
    assert_eq!(objects.get("Service", "stowplan-webhook")["spec"]["ports"][0]["port"], 443);
    assert!(objects.policy("stowplan-numa").is_none());
    assert!(objects.policy("stowplan-keys").is_some());
}

/// What the chart adds where it is absent is what values.yaml has beyond the older values.
#[test]
fn the_new_values_have_the_defaults_of_the_values_file() {
    let template = read("templates/_new_values.tpl");
    let (_, listed) = template.split_once("{{- define \"stowplan.newValues\" -}}\n").unwrap();
    let (listed, _) = listed.split_once("{{- end -}}").expect("its end");
    let listed: BTreeMap<String, Value> = serde_saphyr::from_str(listed).expect("YAML");
    let added = listed.iter().flat_map(|(path, default)| {
        let name = move |leaf: String| format!("{path}.{leaf}").trim_end_matches('.').to_owned();
        leaves(default).into_iter().map(move |(leaf, value)| (name(leaf), value))
    });
    let older = leaves(&older());
    let mut expected = leaves(&values("values.yaml"));
    expected.retain(|path, _| {
        !older.keys().any(|leaf| leaf == path || path.starts_with(&format!("{leaf}.")))
    });
    assert_eq!(added.collect::<BTreeMap<_, _>>(), expected);
}
