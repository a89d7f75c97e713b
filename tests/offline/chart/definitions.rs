//! What the chart installs beside the pods: the definitions of stowplan's resources, and the class
//! for parked claims.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use stowplan::testing::systems::coschedule::keys;

use super::helm::{BINARY, Objects, Render, read, stdout};

#[test]
fn the_definitions_arrive_unchanged_and_survive_an_uninstall() {
    let file = Objects::parse(&read("files/crds.yaml"));
    assert_eq!(file.kinds(), BTreeSet::from(["CustomResourceDefinition"]));
    for (values, keep) in [(&[][..], true), (&["crds.keep=false"], false)] {
        let rendered = Render::defaults().set_all(values).objects();
        for ((kind, name), original) in &file.0 {
            let definition: Value = rendered.get(kind, name);
            assert_eq!(definition["spec"], original["spec"], "{name}");
            let policy = &definition["metadata"]["annotations"]["helm.sh/resource-policy"];
            assert_eq!(policy.as_str(), keep.then_some("keep"));
        }
    }
    let without = Render::defaults().set("crds.install=false").objects();
    assert!(!without.kinds().contains("CustomResourceDefinition"));
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
    for (volumes, parked) in [("provision", true), ("adopt", false)] {
        let objects =
            Render::defaults().set(&format!("policy.coschedule.volumes={volumes:?}")).objects();
        let class = ("StorageClass".to_owned(), keys::PARKED.to_owned());
        assert_eq!(objects.0.contains_key(&class), parked, "{volumes}");
    }
    assert!(!Render::defaults().objects().kinds().contains("StorageClass"));
}
