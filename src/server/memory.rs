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

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        find_limit_under(root.path())
    }

    #[test]
    fn the_limit_of_a_container_is_found() {
        let in_a_container =
            [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "134217728\n")];
        assert_eq!(limit(&in_a_container), Some(128 << 20));
        let without_limit = [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "max\n")];
        assert_eq!(limit(&without_limit), None);
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[("proc/self/cgroup", "garbage\n0\n\n")]), None);
    }

    #[test]
    fn the_lowest_limit_above_counts() {
        let nested = [
            ("proc/self/cgroup", "0::/pods/one/webhook\n"),
            ("sys/fs/cgroup/pods/one/webhook/memory.max", "max\n"),
            ("sys/fs/cgroup/pods/one/memory.max", "1000\n"),
            ("sys/fs/cgroup/pods/memory.max", "2000\n"),
        ];
        assert_eq!(limit(&nested), Some(1000));
    }

    #[test]
    fn the_first_version_of_cgroups_is_read_too() {
        let groups = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/host/path\n0::/\n");
        let file = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(limit(&[groups, (file, "1048576\n")]), Some(1 << 20));
        assert_eq!(limit(&[groups, (file, "9223372036854771712\n")]), None);
    }
}
