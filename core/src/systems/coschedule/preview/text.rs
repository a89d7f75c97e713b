//! Formats the preview of a run as text.

use crate::systems::check::words::counted;

use super::{Claim, OneNode, Run, Task};

impl Run {
    /// The summary in the line that names the run.
    pub(super) fn verdict(&self) -> String {
        if let Some(group) = &self.native_group {
            return format!("coscheduled with all pods of group {group}");
        }
        let has_tasks = |group: &&OneNode| group.tasks.as_ref().is_none_or(|of| !of.is_empty());
        let verdict = match self.groups.iter().filter(has_tasks).count() {
            0 => return "unchanged: its pods may run anywhere".to_owned(),
            groups => format!("coscheduled, {}", counted(groups, "group")),
        };
        match self.conflicts.len() {
            0 => verdict,
            conflicts => format!("{verdict}, {}", counted(conflicts, "conflict")),
        }
    }

    /// The lines below the one that names the run.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut line = |indent: usize, line: &str| lines.push(format!("{:indent$}{line}\n", ""));
        self.held.iter().for_each(|held| line(2, held));
        if !self.mode.is_empty() {
            line(2, &format!("mode {}", self.mode));
        }
        for group in &self.groups {
            let tasks = match &group.tasks {
                Some(tasks) if tasks.is_empty() => "no task".to_owned(),
                Some(tasks) => tasks.join(", "),
                None => "every task".to_owned(),
            };
            let alone = if group.isolated { ", without other runs" } else { "" };
            line(2, &format!("on one node{alone}: {tasks}"));
            let placeholder = group.placeholder.as_deref();
            let placeholder = placeholder.map_or("a placeholder named after its UID", |name| name);
            let claims = match group.claims.as_slice() {
                [] => String::new(),
                claims => format!(" with {}", claims.join(", ")),
            };
            line(4, &format!("{placeholder}{claims}"));
            group.follows.iter().for_each(|follows| line(4, follows));
            if let Some(pod) = &group.any_pod {
                let pods = if claims.is_empty() { "any pod" } else { "a pod that uses them" };
                pod.write(pods, "as it is", 4, &mut line);
            }
        }
        for Claim { workspace, name, changes, warnings, unknown } in &self.claims {
            let change = match unknown {
                Some(unknown) => unknown.clone(),
                None if changes.is_empty() => "as it is".to_owned(),
                None => changes.join(", "),
            };
            // Without a UID only the workspace identifies it.
            let name = if name.starts_with('<') { String::new() } else { format!("{name} ") };
            line(2, &format!("claim {name}of workspace {workspace}: {change}"));
            warnings.iter().for_each(|warning| line(4, &format!("warning: {warning}")));
        }
        match &self.tasks {
            None if self.problem.is_some() => {
                self.problem.iter().for_each(|problem| line(2, problem))
            }
            None if self.unread.is_empty() => {}
            None => line(2, &self.unread),
            Some(tasks) => {
                // Pods with the same changes share their lines.
                let mut groups: Vec<(Vec<&str>, &Task)> = Vec::new();
                for task in tasks {
                    let same = groups.iter_mut().find(|(_, of)| of.has_same_changes(task));
                    match same {
                        Some((names, _)) => names.push(&task.name),
                        None => groups.push((vec![&task.name], task)),
                    }
                }
                for (names, task) in groups {
                    let (pods, as_is) = match names.len() {
                        1 => ("pod", "as it is"),
                        _ => ("pods", "as they are"),
                    };
                    task.write(&format!("{pods} of {}", names.join(", ")), as_is, 2, &mut line);
                }
            }
        }
        self.conflicts.iter().for_each(|conflict| line(2, &format!("conflict: {conflict}")));
        lines.concat()
    }
}

impl Task {
    fn has_same_changes(&self, other: &Self) -> bool {
        (&self.changes, &self.warnings, &self.message)
            == (&other.changes, &other.warnings, &other.message)
    }

    /// Writes the changes to `pods`; `as_is` says that there are none.
    fn write(&self, pods: &str, as_is: &str, indent: usize, line: &mut impl FnMut(usize, &str)) {
        match &self.message {
            Some(message) => line(indent, &format!("{pods}: refused: {message}")),
            None if self.changes.is_empty() => line(indent, &format!("{pods}: {as_is}")),
            None => line(indent, &format!("{pods}:")),
        }
        self.changes.iter().for_each(|change| line(indent + 2, &format!("+ {change}")));
        self.warnings.iter().for_each(|warning| line(indent + 2, &format!("warning: {warning}")));
    }
}
