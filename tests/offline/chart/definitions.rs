//! What the chart installs beside the pods: the definitions of stowplan's resources, and the class
//! for parked claims.

use std::process::Command;

use stowplan::testing::systems::coschedule::keys;

use super::helm::{BINARY, Objects, objects, read, stdout};

const KIND: &str = "CustomResourceDefinition";

#[test]
fn the_definitions_arrive_unchanged_and_survive_an_uninstall() {
    let file = Objects::parse(&read("files/crds.yaml"));
    let definitions = file.of_kind(KIND);
    assert_eq!(definitions.len(), file.0.len());
    for (values, keep) in [(&[][..], Some("keep")), (&["crds.keep=false"], None)] {
        for (name, original) in &definitions {
            let definition = objects(values).get(KIND, name);
            assert_eq!(definition["spec"], original["spec"], "{name}");
            let policy = &definition["metadata"]["annotations"]["helm.sh/resource-policy"];
            assert_eq!(policy.as_str(), keep);
        }
    }
    assert!(!objects(&["crds.install=false"]).has(KIND));
}

#[test]
fn the_definitions_are_those_of_the_binary() {
    let printed = stdout(Command::new(BINARY).arg("crds"));
    assert!(
        read("files/crds.yaml") == printed,
        "stale: cargo run -p stowplan -- crds > charts/stowplan/files/crds.yaml"
    );
}

#[test]
fn a_class_to_park_claims_in_only_where_placeholders_bring_their_own() {
    let classes = |values: &[&str]| objects(values).of_kind("StorageClass");
    let provision = classes(&[r#"policy.coschedule.volumes="provision""#]);
    assert_eq!(provision.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [keys::PARKED]);
    assert!(classes(&[r#"policy.coschedule.volumes="adopt""#]).is_empty());
    assert!(classes(&[]).is_empty());
}
