//! Finds how much memory this process may use: the limit of its cgroup.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of cgroup v1 that means "none" is a number near the largest one.
const NO_LIMIT: u64 = 1 << 60;

/// Finds the memory limit of this process's cgroup, in bytes. `None` without a limit.
#[must_use]
pub(super) fn find_limit() -> Option<u64> {
    find_limit_under(Path::new("/"))
}

/// Finds the limit in the files under `root`: the lowest of the cgroup and of those above it.
fn find_limit_under(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let (folder, file) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            return None;
        };
        find_lowest(&root.join(folder), group, file)
    });
    limits.min()
}

/// Finds the lowest limit from `group` up to the root of the hierarchy. In a container the group's
/// path may be that of the host, and the group itself is mounted as the root.
fn find_lowest(hierarchy: &Path, group: &str, file: &str) -> Option<u64> {
    let group = Path::new(group.trim_start_matches('/'));
    let paths = group.ancestors().map(|group| hierarchy.join(group).join(file));
    paths.filter_map(|path: PathBuf| read_limit(&path)).min()
}

/// Reads a limit. `max` of cgroup v2 is no number, and so no limit.
fn read_limit(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_the_own_groups_is_found() {
        let (own, max) = ("proc/self/cgroup", "sys/fs/cgroup/memory.max");
        let in_pod = (own, "0::/pods/one/webhook\n");
        let of_pod = |folder: &str| format!("sys/fs/cgroup/pods/{folder}memory.max");
        let [webhook, one, pods] = ["one/webhook/", "one/", ""].map(of_pod);
        let nested = [(&*webhook, "max\n"), (&one, "1000\n"), (&pods, "2000\n")];
        let first = (own, "5:cpu,cpuacct:/a\n4:memory:/host/path\n0::/\n");
        let first_max = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        for (files, expected) in [
            (vec![(own, "0::/\n"), (max, "134217728\n")], Some(128 << 20)),
            (vec![(own, "0::/\n"), (max, "max\n")], None),
            (vec![], None),
            (vec![(own, "garbage\n0\n\n")], None),
            ([&[in_pod][..], &nested].concat(), Some(1000)),
            // The first version of cgroups.
            (vec![first, (first_max, "1048576\n")], Some(1 << 20)),
            (vec![first, (first_max, "9223372036854771712\n")], None),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in &files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(find_limit_under(root.path()), expected, "{files:?}");
        }
    }
}
