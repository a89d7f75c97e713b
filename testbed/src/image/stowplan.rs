//! How the image of stowplan is started and labelled, whichever way it is built: by `testbed image`,
//! or by an engine from the `Dockerfile` (tests/offline/releases.rs compares the two).

use std::collections::BTreeMap;

use serde_json::Value;

/// Where the program is, and what a container starts.
pub const ENTRYPOINT: &str = "/stowplan";

/// A number, so that the kubelet can see that it is not root; the chart sets the same.
pub const USER: &str = "65532:65532";

/// The labels: what the manifest has, from `package` of `cargo metadata`, and the commit.
#[must_use]
pub fn labels(package: &Value, revision: Option<&str>) -> BTreeMap<String, String> {
    let field = |name: &str| package[name].as_str();
    [
        ("title", field("name")),
        ("description", field("description")),
        ("version", field("version")),
        ("licenses", field("license")),
        ("source", field("repository")),
        ("revision", revision),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((format!("org.opencontainers.image.{name}"), value?.into())))
    .collect()
}
