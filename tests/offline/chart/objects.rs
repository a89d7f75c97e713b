//! Rules for all objects and for both Deployments, and the chart's metadata.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::helm::{BINARY, Objects, Render, SIDECAR, objects, read, stdout};

#[test]
fn every_object_and_pod_has_the_common_labels() {
    let objects = Render::file("ci/full-values.yaml")
        .set_all(&["metrics.serviceMonitor.enabled=false", "metrics.podMonitor.enabled=true"])
        .set_all(&["serviceAccount.create=true", "controller.admissionPolicy.enabled=true"])
        .objects();
    for (key, object) in &objects.0 {
        let templates = ["/metadata/labels", "/spec/template/metadata/labels"];
        for labels in templates.into_iter().filter_map(|place| object.pointer(place)) {
            assert_eq!(labels["example.com/cost-centre"], "42", "{key:?}");
            assert_eq!(labels["app.kubernetes.io/name"], "plan", "{key:?}");
        }
        assert!(object.pointer("/metadata/labels").is_some(), "{key:?}");
        // A selector cannot change in a release.
        assert!(!object["spec"]["selector"].to_string().contains("cost-centre"), "{key:?}");
    }
}

/// The binary takes a flag once, so a further one of the same name would stop each pod.
#[test]
fn arguments_that_the_chart_sets_are_refused_among_further_ones() {
    let objects = objects(&[r#"tls.clientCASecretName="ca""#]);
    for name in ["webhook", "controller"] {
        let args = objects.args(name);
        let flags = args.iter().filter(|arg| arg.starts_with("--"));
        let flags: Vec<&str> = flags.filter_map(|flag| flag.split('=').next()).collect();
        assert!(flags.len() >= 5, "{name}: {args:?}");
        for flag in flags {
            let value = format!(r#"{name}.extraArgs=["--fine", "{flag}=other"]"#);
            let refusal = Render::defaults().set(&value).refusal();
            let sentence =
                format!("{name}.extraArgs has {flag}=other, which the chart sets itself");
            assert!(refusal.contains(&sentence), "{refusal}");
        }
    }
}

/// Also where a YAML reader would take it for something else.
#[test]
fn another_name_is_a_text_in_all_labels() {
    for object in objects(&[r#"nameOverride="on""#]).0.values() {
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/name"], "on");
    }
}

/// Artifact Hub and `helm show chart` print the metadata.
#[test]
fn the_charts_metadata_are_complete_and_true() {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).expect("YAML");
    let home = chart["home"].as_str().expect("a home");
    assert_eq!(chart["sources"], json!([home]));
    assert!(chart["keywords"].as_array().is_some_and(|words| words.len() >= 4));
    let annotations = &chart["annotations"];
    let yaml = |name: &str| -> Vec<Value> {
        let text = annotations[format!("artifacthub.io/{name}")].as_str().expect("text");
        serde_saphyr::from_str(text).expect("YAML")
    };
    for link in yaml("links") {
        let page = link["url"].as_str().and_then(|url| url.strip_prefix(home)).expect("a page");
        let path = page.strip_prefix("/blob/main/").expect("a file");
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path}");
    }
    let definitions = Objects::parse(&read("files/crds.yaml"));
    let definitions = definitions.0.iter().map(|((_, name, _), object)| {
        let spec = &object["spec"];
        json!([name, spec["names"]["kind"], spec["versions"][0]["name"]]).to_string()
    });
    let listed = yaml("crds");
    let listed = listed.iter().map(|it| json!([it["name"], it["kind"], it["version"]]).to_string());
    assert_eq!(listed.collect::<BTreeSet<_>>(), definitions.collect::<BTreeSet<_>>());
    // The license is that of the workspace.
    let manifest = include_str!("../../../Cargo.toml");
    let license = annotations["artifacthub.io/license"].as_str().expect("a license");
    assert!(manifest.contains(&format!("license = \"{license}\"")), "{license}");
}

/// `--help` is reached only once all arguments before it have been read.
#[test]
fn the_binary_takes_the_arguments_of_the_deployments() {
    let changed = [
        r#"listenAddress="[::]""#,
        r#"webhook.extraArgs=["--log-format=text"]"#,
        r#"controller.extraArgs=["--max-watch-age=5m"]"#,
    ];
    for values in [&[][..], &[SIDECAR], &changed] {
        for name in ["webhook", "controller"] {
            stdout(Command::new(BINARY).args(objects(values).args(name)).arg("--help"));
        }
    }
}
