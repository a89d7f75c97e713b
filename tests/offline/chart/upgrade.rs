//! `helm upgrade --reuse-values`: Helm takes the values of the installed chart in place of the
//! defaults of the new one, so each value that was added since is absent.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Map, Value};

use super::helm::{CA, CHART, Objects, Render, read};
use super::values::{leaves, older, values};

/// This chart with the values of the older one, as Helm takes them.
struct Reused(tempfile::TempDir);

impl Reused {
    fn new() -> Self {
        fn copy(from: &Path, to: &Path) {
            fs::create_dir_all(to).expect("a folder");
            for entry in fs::read_dir(from).expect("a folder") {
                let path = entry.expect("an entry").path();
                let target = to.join(path.file_name().expect("a name"));
                if path.is_dir() {
                    copy(&path, &target);
                } else {
                    fs::copy(&path, &target).expect("a copy");
                }
            }
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        copy(Path::new(CHART), folder.path());
        fs::write(folder.path().join("values.yaml"), include_str!("values/9cdd524.yaml"))
            .expect("the older values");
        Self(folder)
    }

    fn render(&self) -> Render {
        let folder = self.0.path().to_str().expect("text");
        Render::of(folder).set(&format!("tls.caBundle={CA:?}"))
    }
}

/// All that is rendered with the defaults is rendered. Only values that the older chart had stay as
/// they were: the node selector, and the webhook's request of memory.
#[test]
fn values_of_the_older_chart_give_what_the_defaults_give() {
    let reused = Reused::new();
    let objects = reused.render().objects().0;
    let mut defaults = Render::defaults().objects().0;
    for object in defaults.values_mut() {
        let memory = "/spec/template/spec/containers/0/resources/requests/memory";
        if object["metadata"]["name"] == "stowplan-webhook"
            && let Some(memory) = object.pointer_mut(memory)
        {
            *memory = "32Mi".into();
        }
        for place in ["/spec/template/spec", "/spec"] {
            if let Some(spec) = object.pointer_mut(place).and_then(Value::as_object_mut) {
                spec.remove("nodeSelector");
            }
        }
    }
    assert_eq!(objects.keys().collect::<Vec<_>>(), defaults.keys().collect::<Vec<_>>());
    for (key, object) in &defaults {
        assert_eq!(&objects[key], object, "{key:?}");
    }
}

/// A user who reuses the values may set a new one, whose neighbours are then absent still.
#[test]
fn one_value_of_a_new_group_is_enough() {
    let reused = Reused::new();
    let render = reused.render().set_all(&[
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "metrics.dashboard.enabled=true",
        r#"serviceAccount.annotations={"example.com/role": "reader"}"#,
        r#"webhook.service.annotations={"example.com/mesh": "none"}"#,
        "webhook.numaPolicy.enabled=false",
    ]);
    let objects = render.objects();
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert!(objects.kinds().contains(kind), "{kind}");
    }
    let service: Service = objects.get("Service", "stowplan-webhook");
    assert_eq!(service.spec.expect("a spec").ports.expect("ports")[0].port, 443);
    let policies = |objects: &Objects| -> Vec<String> {
        let of_kind = objects.0.keys().filter(|(kind, _)| kind == "ValidatingAdmissionPolicy");
        of_kind.map(|(_, name)| name.clone()).collect()
    };
    assert!(!policies(&objects).contains(&"stowplan-numa".to_owned()));
    assert!(policies(&objects).contains(&"stowplan-keys".to_owned()));
}

/// What the chart adds where it is absent is what values.yaml has beyond the older values.
#[test]
fn the_new_values_have_the_defaults_of_the_values_file() {
    let template = read("templates/_new_values.tpl");
    let (_, listed) =
        template.split_once("{{- define \"stowplan.newValues\" -}}\n").expect("a list");
    let (listed, _) = listed.split_once("{{- end -}}").expect("its end");
    let listed: Map<String, Value> = serde_saphyr::from_str(listed).expect("YAML");
    let mut added = BTreeMap::new();
    for (path, default) in &listed {
        for (leaf, value) in leaves(default) {
            let dot = if leaf.is_empty() { "" } else { "." };
            added.insert(format!("{path}{dot}{leaf}"), value);
        }
    }
    let older = leaves(&older());
    let is_older =
        |path: &str| older.keys().any(|leaf| leaf == path || path.starts_with(&format!("{leaf}.")));
    let expected: BTreeMap<_, _> =
        leaves(&values("values.yaml")).into_iter().filter(|(path, _)| !is_older(path)).collect();
    assert_eq!(added, expected);
}
