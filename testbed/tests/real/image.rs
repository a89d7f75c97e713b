//! The image of stowplan, as `cargo testbed image` makes it: what is in it. Real nodes run this image.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use testbed::command::text;
use testbed::image::{Architecture, program};

use crate::stowplan_image::command;

/// Returns the files of a tar, by path, with their modes.
fn files(tar: impl Read) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        files.insert(path, (entry.header().mode().unwrap(), content));
    }
    files
}

/// Returns the configuration and the only layer of an archive.
fn unpack(archive: &Path) -> (Value, Vec<u8>) {
    let files = files(File::open(archive).unwrap());
    let json = |path: &str| serde_json::from_slice::<Value>(&files[path].1).unwrap();
    let docker = json("manifest.json");
    let layers = docker[0]["Layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1);
    let layer = files[layers[0].as_str().unwrap()].1.clone();
    (json(docker[0]["Config"].as_str().unwrap()), layer)
}

pub(crate) async fn it_has_one_static_program_and_nothing_of_the_machine(_: Arc<()>) -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first.tar", "second.tar"].map(|name| dir.path().join(name));
    let said = [&first, &second].map(|archive| {
        let mut command = command(&["--output", archive.to_str().unwrap()]);
        text(command.env("SOURCE_DATE_EPOCH", "1700000000")).unwrap()
    });
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "the archives differ");
    let version = env!("CARGO_PKG_VERSION");
    let reference = format!("stowplan:{version}");
    assert_eq!(said[0].lines().next(), Some(&*reference));
    assert_eq!(said[0].lines().nth(1), said[1].lines().nth(1));
    assert!(said[0].contains("  digest   sha256:"), "{}", said[0]);

    let (config, layer) = unpack(&first);
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["architecture"], Architecture::of_this_machine().unwrap().to_string());
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/stowplan"]));
    assert_eq!(config["config"]["Cmd"], Value::Null);
    let labels = config["config"]["Labels"].as_object().unwrap();
    assert_eq!(labels["org.opencontainers.image.version"], version);
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");

    let packed = files(&*layer);
    assert_eq!(packed.keys().collect::<Vec<_>>(), ["stowplan"]);
    let (mode, bytes) = &packed["stowplan"];
    assert_eq!(*mode, 0o755);
    program::check_static(bytes).unwrap();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Not the home directory itself: stowplan names root's.
    let cargo = std::env::home_dir().unwrap().join(".cargo");
    let own = std::env::current_exe().unwrap();
    let folders = [workspace, &cargo, own.parent().unwrap()];
    assert_eq!(program::find_path(bytes, &folders), None);

    let program = dir.path().join("stowplan");
    fs::write(&program, bytes)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let said = text(Command::new(program).arg("--version"))?;
    assert_eq!(said, format!("stowplan {version}\n"));
    Ok(())
}
