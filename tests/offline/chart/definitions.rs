//! Objects that the chart installs beside the pods: the definitions of stowplan's resources, and the class
//! for parked claims.

use stowplan_core::systems::coschedule::keys;

use super::helm::{Objects, objects, read};

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
}

/// Where placeholders bring their own volumes; the reviewed changes (`rendering.rs`) show where not.
#[test]
fn the_class_to_park_claims_in_has_the_name_that_stowplan_knows() {
    objects(&[r#"policy.coschedule.volumes="provision""#]).get("StorageClass", keys::PARKED);
}
