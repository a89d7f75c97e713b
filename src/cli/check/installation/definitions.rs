//! Diagnoses the definitions of stowplan's kinds.

use kube::ResourceExt as _;
use serde_json::Value;

use super::facts::{Facts, known};
use stowplan_core::systems::check::installation::{Findings, Item};
use stowplan_core::systems::{self, CustomResourceDefinition};

const REMEDY: &str = "helm upgrade, or: stowplan crds | kubectl apply --server-side -f -";

/// The fields that are named in a message; the others are counted.
const SHOWN: usize = 3;

/// Diagnoses whether the cluster serves the kinds of this version.
pub(super) fn check(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("definitions");
    let what = "the definitions of stowplan's kinds are not known";
    let Some(installed) = known(&mut findings, what, &facts.definitions) else {
        return findings.or_ok("");
    };
    let mut names = Vec::new();
    for expected in systems::definitions() {
        let name = expected.name_any();
        match installed.iter().find(|of| of.name_any() == name) {
            None => findings.problem(format!("the cluster has no definition {name}"), REMEDY),
            Some(found) => compare(&name, &expected, found, &mut findings),
        }
        let versions: Vec<&str> = served(&expected).collect();
        names.push(format!("{name} ({})", versions.join(", ")));
    }
    findings.or_ok(format!("as this version expects: {}", names.join(", ")))
}

fn compare(
    name: &str,
    expected: &CustomResourceDefinition,
    found: &CustomResourceDefinition,
    findings: &mut Findings,
) {
    let mut conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !conditions.any(|of| of.type_ == "Established" && of.status == "True") {
        findings
            .problem(format!("{name} is not established"), format!("kubectl describe crd {name}"));
    }
    for version in served(expected) {
        if !served(found).any(|of| of == version) {
            findings.problem(format!("{name} does not serve version {version}"), REMEDY);
            continue;
        }
        let schema = |of: &CustomResourceDefinition| {
            let version = of.spec.versions.iter().find(|of| of.name == version)?;
            serde_json::to_value(version.schema.as_ref()?.open_api_v3_schema.as_ref()?).ok()
        };
        let (wanted, has) = (schema(expected), schema(found));
        let mut missing = Vec::new();
        find_missing("", &wanted.unwrap_or_default(), &has.unwrap_or_default(), &mut missing);
        if !missing.is_empty() {
            let more = missing.len().saturating_sub(SHOWN);
            missing.truncate(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            findings.problem(
                format!(
                    "{name} is of an older version: the API server drops the fields {}{more}",
                    missing.join(", ")
                ),
                REMEDY,
            );
        }
    }
}

fn served(definition: &CustomResourceDefinition) -> impl Iterator<Item = &str> {
    let versions = definition.spec.versions.iter().filter(|of| of.served);
    versions.map(|of| of.name.as_str())
}

/// Finds the properties of a schema that another one does not have.
fn find_missing(path: &str, wanted: &Value, has: &Value, missing: &mut Vec<String>) {
    for (name, property) in wanted["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match has["properties"].get(name) {
            None => missing.push(path),
            Some(other) => find_missing(&path, property, other, missing),
        }
    }
    if let Some(items) = wanted.get("items") {
        find_missing(path, items, &has["items"], missing);
    }
}
