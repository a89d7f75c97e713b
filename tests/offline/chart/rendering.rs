//! The complete chart as it is rendered: reviewed snapshots, names, notes. That an API server knows
//! all fields is shown on the control plane (`testbed/tests/testbed/chart.rs`).

use std::collections::BTreeSet;

use similar::{ChangeTag, TextDiff};

use super::helm::{CA, CHART, IMAGE, NO_CONTROLLER, Render, SIDECAR, helm, stdout};
use super::upgrade::reused;

#[test]
fn helm_finds_nothing_to_complain_about() {
    for values in [
        &[][..],
        &["--values", "ci/full-values.yaml"],
        &["--values", "values-strict.yaml"],
        &["--values", "values-openshift.yaml"],
    ] {
        let text = stdout(helm().current_dir(CHART).args(["lint", "--strict", "."]).args(values));
        assert!(text.contains("1 chart(s) linted, 0 chart(s) failed"), "{text}");
        assert!(!text.contains("[WARNING]") && !text.contains("[ERROR]"), "{text}");
    }
}

/// Compares a text with `tests/offline/chart/snapshots/<name>.snap`.
pub(super) fn assert_snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn the_chart_renders_as_reviewed() {
    let full = Render::file("ci/full-values.yaml").release("other").namespace("placement");
    for (name, render) in [("defaults", Render::defaults()), ("every_value_changed", full)] {
        // Without the CustomResourceDefinitions, which are another command's to show, and without
        // the dashboard, which is a file of its own.
        let is_file = |document: &&str| {
            ["crds", "dashboard"]
                .iter()
                .any(|name| document.contains(&format!("# Source: stowplan/templates/{name}.yaml")))
        };
        let documents = render.text().split_inclusive("\n---\n");
        assert_snapshot(name, &documents.filter(|it| !is_file(it)).collect::<String>());
        assert_eq!(render.text(), stdout(&mut render.command()), "another time other bytes");
    }
}

/// Values, and behind `with` what is set beside them before and after. Indented lines continue a row.
const CHANGES: &str = include_str!("values/changes.txt");

/// The rows of [`CHANGES`], with the renderings before and after.
pub(super) fn changes() -> Vec<(String, Render, Render)> {
    let rows = CHANGES.trim().replace("\n    ", " ");
    let with = |render: Render, values: &str| {
        render.set_all(&values.split(" + ").filter(|it| !it.is_empty()).collect::<Vec<_>>())
    };
    let changes = rows.lines().map(|row| {
        let (values, beside) = row.split_once(" with ").unwrap_or((row, ""));
        let before = with(Render::defaults(), beside);
        (row.to_owned(), before.clone(), with(before, values))
    });
    changes.collect()
}

/// The lines that differ, below the kind and the name of their object. Of an object that is not there
/// any more, the lines are those of `before`, which other snapshots show.
fn difference(before: &Render, after: &Render) -> String {
    let keys: BTreeSet<_> = before.objects().0.keys().chain(after.objects().0.keys()).collect();
    let yaml = |render: &Render, key| {
        let object = render.objects().0.get(key);
        object.map_or_else(String::new, |it| serde_saphyr::to_string(it).expect("YAML"))
    };
    let mut found = String::new();
    for key in keys {
        let [old, new] = [before, after].map(|render| yaml(render, key));
        if old == new {
            continue;
        }
        found += &format!("{} {}{}\n", key.0, key.1, if new.is_empty() { ": removed" } else { "" });
        let changes = TextDiff::from_lines(&old, &new);
        let changes = changes.iter_all_changes().filter(|it| it.tag() != ChangeTag::Equal);
        found.extend(changes.filter(|_| !new.is_empty()).map(|it| format!("{}{it}", it.tag())));
    }
    found
}

#[test]
fn each_change_of_values_has_the_reviewed_effects() {
    let mut shown = String::new();
    for (row, before, after) in changes() {
        let difference = difference(&before, &after);
        let difference = if difference.is_empty() { "nothing\n" } else { &*difference };
        shown += &format!("## {row}\n{difference}\n");
    }
    // Only values that the older chart had stay as they were. Of a group of new values, one can be set.
    let (_folder, older) = reused();
    let one_of_each_group = older.clone().set_all(&[
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        r#"serviceAccount.annotations={"example.com/role": "reader"}"#,
        r#"webhook.service.annotations={"example.com/mesh": "none"}"#,
        "webhook.numaPolicy.enabled=false",
    ]);
    let defaults = Render::defaults;
    for (name, before, after) in [
        ("values-openshift.yaml", defaults(), Render::file("values-openshift.yaml").set(CA)),
        ("values-strict.yaml", defaults(), Render::file("values-strict.yaml").set(CA)),
        ("values of the older chart", defaults(), older.clone()),
        (
            "values of the older chart, and one of each group of new values",
            older,
            one_of_each_group,
        ),
    ] {
        shown += &format!("## {name}\n{}\n", difference(&before, &after));
    }
    assert_snapshot("effects", &shown);
}

/// The name of a release that has the chart's name in it is the prefix of all names.
#[test]
fn names_follow_the_release() {
    for (release, prefix) in [("my-stowplan", "my-stowplan"), ("place", "place-stowplan")] {
        let text = Render::bare().release(release).text().replace(prefix, "stowplan");
        let text = text.replace(&format!("instance: \"{release}\""), "instance: \"stowplan\"");
        let text = text.replace(&format!("instance: {release}\n"), "instance: stowplan\n");
        for (line, expected) in text.lines().zip(Render::bare().text().lines()) {
            assert_eq!(line, expected, "{release}");
        }
    }
}

#[test]
fn old_and_new_kubernetes_releases() {
    let of = |version| Render::defaults().args(&["--kube-version", version]);
    assert!(of("1.32.9").refusal().contains("kubeVersion: >=1.33.0-0"));
    for version in ["1.33.0", "1.33.4-gke.100", "1.40.0"] {
        of(version).text();
    }
}

#[test]
fn the_notes_tell_how_to_see_that_it_works() {
    let mut shown = String::new();
    for values in
        [&[][..], &[SIDECAR], &[NO_CONTROLLER], &[r#"webhook.failurePolicy="Fail""#, "replicas=1"]]
    {
        let mut install = helm();
        install.args(["install", "stowplan", CHART, "--dry-run=client", "--namespace", "here"]);
        install.args(["--values", IMAGE, "--set-json", CA]);
        install.args(values.iter().flat_map(|value| ["--set-json", value]));
        let text = stdout(&mut install);
        let (_, notes) = text.split_once("NOTES:").expect("notes");
        shown += &format!("## {}\n{notes}\n", values.join(" + "));
    }
    assert_snapshot("notes", &shown);
}
