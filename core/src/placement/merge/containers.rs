//! Merges changes of names, volumes and containers. Volumes, variables, mounts and init containers of an
//! earlier round are recognized by their names.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::Merge;
use crate::placement::container::{Container, Parts};
use crate::placement::intent::{Change, ContainerChange, Intent};
use crate::placement::patch::{Editor, SCALAR, outline_list};
use crate::placement::reason::{Finding, Reason, quoted};
use crate::wire::Text;

/// Returns true if an intent is about the parts that only [`Parts`] decodes.
pub(super) fn is_about_parts(intent: &Intent) -> bool {
    matches!(
        intent.change,
        Change::Hostname(_)
            | Change::Subdomain(_)
            | Change::DnsSearch(_)
            | Change::Volume { .. }
            | Change::InitContainer { .. }
            | Change::Container { .. }
    )
}

/// The parts of the spec that only some systems change.
pub(super) fn outline(parts: &Parts<'_>) -> Map<String, Value> {
    let list = |field: &str, count| (field.to_owned(), outline_list(count));
    let mut spec = Map::new();
    spec.extend(parts.hostname.iter().map(|_| ("hostname".to_owned(), SCALAR)));
    spec.extend(parts.subdomain.iter().map(|_| ("subdomain".to_owned(), SCALAR)));
    spec.extend(parts.dns_config.iter().map(|of| {
        let searches = of.searches.iter().map(|of| list("searches", of.len()));
        ("dnsConfig".to_owned(), searches.collect())
    }));
    spec.extend(parts.init_containers.iter().map(|of| list("initContainers", of.len())));
    let containers = parts.containers.iter().map(|container| {
        let mut members = Map::new();
        members.extend(container.command.iter().map(|of| list("command", of.len())));
        members.extend(container.env.iter().map(|of| list("env", of.len())));
        members.extend(container.volume_mounts.iter().map(|of| list("volumeMounts", of.len())));
        Value::Object(members)
    });
    spec.insert("containers".to_owned(), containers.collect());
    spec
}

/// A named item of a list: a volume or an init container.
fn named(name: &str, fields: &Value) -> Value {
    let mut item = fields.clone();
    item["name"] = name.into();
    item
}

impl Merge<'_> {
    /// Adds the changes of names, volumes and containers.
    pub(super) fn change_parts(&mut self, parts: &Parts<'_>) {
        for intent in self.intents {
            let result = match &intent.change {
                Change::Hostname(name) => self.set_name(parts.hostname.as_ref(), "hostname", name),
                Change::Subdomain(name) => {
                    self.set_name(parts.subdomain.as_ref(), "subdomain", name)
                }
                Change::DnsSearch(domain) => self.add_search(parts, domain),
                Change::Volume { name, source } => {
                    let mut names = parts.volumes.iter().flatten().map(|of| of.name.as_str());
                    if names.all(|present| present != *name) {
                        self.editor.append(&["spec", "volumes"], named(name, source));
                    }
                    Ok(())
                }
                Change::InitContainer { name, fields } => {
                    let mut names = parts.init_containers.iter().flatten();
                    if names.all(|present| present.as_str() != *name) {
                        self.editor.append(&["spec", "initContainers"], named(name, fields));
                    }
                    Ok(())
                }
                Change::Container { index, change } => match parts.containers.get(*index) {
                    Some(of) => change_container(of, *index, intent.key, change, &mut self.editor),
                    None => Ok(()),
                },
                _ => Ok(()),
            };
            if let Err((problem, remedy)) = result {
                let reason = Reason::FieldConflict;
                self.findings.push(Finding::new(reason, intent.key, problem, remedy));
            }
        }
    }

    fn set_name(
        &mut self,
        present: Option<&Text<'_>>,
        field: &str,
        name: &str,
    ) -> Result<(), Conflict> {
        match present.map(Text::as_str) {
            Some(present) if present == name => Ok(()),
            Some(present) => Err((
                format!("spec.{field} is {} and would become {}", quoted(present), quoted(name)),
                "remove the field from the pod template: stowplan sets it".into(),
            )),
            None => {
                self.editor.set(&["spec", field], name);
                Ok(())
            }
        }
    }

    fn add_search(&mut self, parts: &Parts<'_>, domain: &str) -> Result<(), Conflict> {
        let searches = parts.dns_config.iter().flat_map(|of| of.searches.iter().flatten());
        let present: Vec<&str> = searches.map(String::as_str).collect();
        if present.contains(&domain) {
            return Ok(());
        }
        let characters: usize = present.iter().map(|of| of.len() + 1).sum();
        if present.len() >= MOST_SEARCHES || characters + domain.len() > MOST_SEARCH_CHARACTERS {
            return Err((
                format!("spec.dnsConfig.searches has no room for {domain}"),
                "remove search domains that the pod does not need".into(),
            ));
        }
        self.editor.append(&["spec", "dnsConfig", "searches"], domain);
        Ok(())
    }
}

/// A conflict: the problem and the remedy.
type Conflict = (String, Cow<'static, str>);

/// The most domains in the search path of a pod, and the most characters of all of them with a blank
/// between two (Kubernetes).
const MOST_SEARCHES: usize = 32;
const MOST_SEARCH_CHARACTERS: usize = 2048;

fn change_container(
    container: &Container<'_>,
    index: usize,
    key: &str,
    change: &ContainerChange,
    editor: &mut Editor,
) -> Result<(), Conflict> {
    let index = index.to_string();
    let field_of = |field| ["spec", "containers", &index, field];
    match change {
        ContainerChange::Variable { name, value } => {
            let mut present = container.env.iter().flatten();
            match present.find(|variable| variable.name == *name) {
                None => editor.append(&field_of("env"), json!({"name": name, "value": value})),
                Some(own) if own.value.as_ref() == Some(value) => {}
                Some(own) => {
                    let own = own.value.as_ref().map(|of| format!(" to {}", quoted(of)));
                    return Err((
                        format!(
                            "container {} sets the variable {name}{}, and stowplan would set it to {}",
                            quoted(container.name.as_str()),
                            own.unwrap_or_default(),
                            quoted(value)
                        ),
                        format!(
                            "remove the variable from the container: {key} decides what it says"
                        )
                        .into(),
                    ));
                }
            }
        }
        ContainerChange::Mount { volume, part, path } => {
            let mut present = container.volume_mounts.iter().flatten();
            match present.find(|of| of.mount_path.trim_end_matches('/') == path) {
                None => {
                    let mut mount = json!({"mountPath": path, "name": volume});
                    if let Some(part) = part {
                        mount["subPath"] = json!(part);
                    }
                    editor.append(&field_of("volumeMounts"), mount);
                }
                Some(own) if own.name == *volume => {}
                Some(own) => {
                    return Err((
                        format!(
                            "container {} mounts volume {} at {path}",
                            quoted(container.name.as_str()),
                            quoted(&own.name)
                        ),
                        "mount that volume at another path".into(),
                    ));
                }
            }
        }
        ContainerChange::Command(command) => {
            let is_set = container.command.as_ref().is_some_and(|of| !of.is_empty());
            if !is_set {
                let words = command.iter().map(|word| word.as_str().into()).collect();
                editor.set_list(&field_of("command"), words);
            }
        }
        ContainerChange::ReadinessProbe(probe) => {
            if container.readiness_probe.is_none_or(|own| own.get() == "null") {
                editor.set(&field_of("readinessProbe"), probe.clone());
            }
        }
    }
    Ok(())
}
