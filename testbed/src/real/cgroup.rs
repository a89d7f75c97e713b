//! The control groups of nodes: one below this process's own, in every hierarchy.
//!
//! With version 1 each controller has a hierarchy, and a node gets a group in each; with version 2
//! there is one. A node then enters a control group namespace, so that every kubelet owns
//! `/kubepods`. Version 2 has not been tried: the machines of the project have version 1.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// The file of a node's folder that names its groups, one a line.
const RECORD: &str = "cgroups";

/// How long processes that were killed may take to end.
const LIMIT: Duration = Duration::from_secs(30);

/// Where the groups of this process are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hierarchies {
    /// Version 1: the controllers of each hierarchy (`cpu,cpuacct`, `name=systemd`), and the folder
    /// of this process's group.
    One(Vec<(String, PathBuf)>),
    /// Version 2: the root of the hierarchy. The own group has processes, and such a group gives
    /// its children no controllers.
    Two(PathBuf),
}

impl Hierarchies {
    /// Finds the groups of this process.
    pub(crate) fn find() -> Result<Self> {
        let own =
            fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/mounts").context("cannot read /proc/mounts")?;
        Self::parse(&own, &mounts)
    }

    fn parse(own: &str, mounts: &str) -> Result<Self> {
        let mounted = |kind: &str, controllers: &str| {
            mounts.lines().find_map(|line| {
                let mut words = line.split(' ').skip(1);
                let (folder, found, options) = (words.next()?, words.next()?, words.next()?);
                let has = |wanted: &str| options.split(',').any(|option| option == wanted);
                (found == kind
                    && controllers.split(',').all(|wanted| wanted.is_empty() || has(wanted)))
                .then(|| PathBuf::from(folder))
            })
        };
        let mut one = Vec::new();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                continue;
            }
            // A hierarchy that is not mounted is no use to a kubelet either.
            if let Some(root) = mounted("cgroup", controllers) {
                one.push((controllers.to_owned(), root.join(path.trim_start_matches('/'))));
            }
        }
        if one.iter().any(|(controllers, _)| controllers.split(',').any(|name| name == "memory")) {
            return Ok(Self::One(one));
        }
        let root = mounted("cgroup2", "").context("no hierarchy of control groups is mounted")?;
        Ok(Self::Two(root))
    }

    /// The word for `assets/node.sh`: the hierarchies to mount, separated by spaces.
    pub(crate) fn controllers(&self) -> String {
        match self {
            Self::One(all) => {
                all.iter().map(|(controllers, _)| &**controllers).collect::<Vec<_>>().join(" ")
            }
            Self::Two(_) => "unified".to_owned(),
        }
    }

    /// Makes the groups of a node, and records them in its folder first, so that they are found
    /// after the end of this process.
    pub(crate) fn create(&self, node: &str, folder: &Path) -> Result<Vec<PathBuf>> {
        let name = format!("stowplan-{node}");
        let groups: Vec<_> = match self {
            Self::One(all) => all.iter().map(|(_, own)| own.join(&name)).collect(),
            Self::Two(root) => vec![root.join(&name)],
        };
        let record: String = groups.iter().map(|group| format!("{}\n", group.display())).collect();
        fs::write(folder.join(RECORD), record)?;
        if let Self::Two(root) = self {
            enable_controllers(root)?;
        }
        for group in &groups {
            let cannot = || format!("cannot make the control group {}", group.display());
            match fs::create_dir(group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error).with_context(cannot);
                }
                _ => inherit_cpuset(group).with_context(cannot)?,
            }
        }
        Ok(groups)
    }
}

/// A new group of the controller `cpuset` has no processors, and takes no process until it has.
fn inherit_cpuset(group: &Path) -> io::Result<()> {
    let Some(parent) = group.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        // Version 2 inherits by itself.
        if parent.join(file).is_file() && !group.join("cgroup.controllers").exists() {
            fs::write(group.join(file), fs::read(parent.join(file))?)?;
        }
    }
    Ok(())
}

fn enable_controllers(root: &Path) -> Result<()> {
    let available = fs::read_to_string(root.join("cgroup.controllers"))?;
    for controller in available.split_whitespace() {
        fs::write(root.join("cgroup.subtree_control"), format!("+{controller}")).with_context(
            || format!("cannot pass the controller {controller} to control groups"),
        )?;
    }
    Ok(())
}

/// Waits until the processes of a node have ended, and removes its groups. A group that is left
/// would cost the next kubelet 25 seconds.
pub(crate) fn remove_recorded(folder: &Path) -> Result<()> {
    let record = match fs::read_to_string(folder.join(RECORD)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.context("cannot read the names of a node's control groups")?,
    };
    let end = Instant::now() + LIMIT;
    for group in record.lines().map(Path::new) {
        // Only what `create` has made.
        let is_own = group
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("stowplan-node-"));
        ensure!(is_own, "{} is not the control group of a node", group.display());
        while let Err(error) = remove_tree(group) {
            if Instant::now() >= end {
                bail!("cannot remove the control group {}: {error}", group.display());
            }
            sleep(Duration::from_millis(20));
        }
    }
    Ok(fs::remove_file(folder.join(RECORD))?)
}

/// Folders only: the files of a group are the kernel's.
fn remove_tree(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_has_one_hierarchy() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = Hierarchies::parse("0::/user.slice/x\n", mounts).unwrap();
        assert_eq!(found, Hierarchies::Two("/sys/fs/cgroup".into()));
        assert_eq!(found.controllers(), "unified");
        assert!(Hierarchies::parse("0::/\n", "proc /proc proc rw 0 0\n").is_err());
    }

    #[test]
    fn a_folder_that_is_not_of_a_node_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(dir.path().join(RECORD), format!("{}\n", precious.display())).unwrap();
        let error = remove_recorded(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is not the control group of a node"), "{error}");
        assert!(precious.is_dir());
    }
}
