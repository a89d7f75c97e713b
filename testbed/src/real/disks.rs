//! Disks that one real node at a time can have, as those of a cloud: a driver of FlexVolumes (`assets/disk.sh`).
//!
//! A volume of [`DRIVER`] is attached and detached by the controller manager, and mounted by the kubelets. The
//! controller manager refuses a second node, and so does the driver.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::control_plane::ControlPlane;

/// The name of the driver, in the `flexVolume` of a volume.
pub const DRIVER: &str = "stow.test/disk";

/// The folder of the run directory with the disks, and that of their driver in it.
pub(crate) const FOLDER: &str = "disks";
const PLUGINS: &str = "plugins";

const SCRIPT: &str = include_str!("../../assets/disk.sh");

/// Returns where the programs of Kubernetes look for drivers.
pub(crate) fn plugins(run_directory: &Path) -> PathBuf {
    run_directory.join(FOLDER).join(PLUGINS)
}

/// Writes the driver.
pub(crate) fn install(run_directory: &Path) -> Result<()> {
    let folder = run_directory.join(FOLDER);
    let program = plugins(run_directory).join(DRIVER.replace('/', "~")).join("disk");
    let parts = [Some(&*folder.join("attached")), Some(&*folder.join("content")), program.parent()];
    for part in parts.into_iter().flatten() {
        fs::create_dir_all(part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    let script = SCRIPT.replace("{folder}", &format!("'{}'", folder.display()));
    fs::write(&program, script)
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", program.display()))
}

/// Returns the node that has a disk, by the name of its volume.
#[must_use]
pub fn node_of(plane: &ControlPlane, volume: &str) -> Option<String> {
    let link = plane.dir().join(FOLDER).join("attached").join(volume);
    Some(fs::read_link(link).ok()?.display().to_string())
}
