//! The placeholder of a group: a StatefulSet of one pod that mounts the group's claims, and after which
//! the group's members go.
//!
//! What Tekton's own affinity assistant takes of a run's pod template is taken here too, and nothing
//! else. What differs: updates wait until the pod is deleted (`OnDelete`; a rolling update would take the
//! node away under running members), a pod that waits does not hold up a better template (`Parallel`),
//! claims are mounted, and the placeholder is held to the node where members are: whatever befalls its pod,
//! the group stays whole. The scheduler itself sees to that, by a required pod affinity toward the pods of
//! the group, of which the placeholder's is one: as long as there is no other, it may go anywhere.

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorTerm};
use serde_json::{Map, Value, json};

use super::keys::{
    COMPONENT, COMPONENT_VALUE, GROUP, GROUP_KEY, INSTANCE, MEMBER, MODE, PLACEHOLDER,
};
use super::mode;
use crate::policy::{CoscheduleMode, IsolationScope, Placeholder as PlaceholderPolicy};
use crate::view::pipeline_run::Labels;
use crate::view::{Name, Owner};

/// The label of nodes that pods of a group share.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The user of the container where the run does not name one: nobody's.
const USER: i64 = 65_532;

/// The most requirements that keep the placeholder out of nodes. At about 80 bytes each the object stays
/// far below what the API server takes.
const MOST_EXCLUDED: usize = 4_096;

/// The members of a pod template that go to the placeholder as they are.
const TAKEN: [&str; 3] = ["tolerations", "imagePullSecrets", "priorityClassName"];

/// What a placeholder is made of.
#[derive(Clone, Debug)]
pub struct Blueprint<'v> {
    /// Its name.
    pub name: Name,
    /// Whom it stands for.
    pub cause: Cause<'v>,
    /// The claims that it mounts by name.
    pub claims: Vec<&'v str>,
    /// The claims that its StatefulSet makes: the name of each and the template it is made of.
    pub templates: Vec<(String, &'v Value)>,
    /// The pod template of the run, or of a member.
    pub template: Option<&'v Value>,
    /// The service account of the run's pods.
    pub service_account: Option<&'v str>,
    /// The node selector; empty: the template's.
    pub node_selector: &'v Labels,
    /// How far it keeps other placeholders away.
    pub isolation: Isolation,
    /// Where it may be, besides what the template says.
    pub bounds: Bounds<'v>,
}

/// Whom a placeholder stands for.
#[derive(Clone, Debug)]
pub enum Cause<'v> {
    /// A group of a PipelineRun, which owns it.
    Run {
        /// The run.
        owner: Owner,
        /// The group's key in it.
        key: &'v str,
        /// What of the run shares a node.
        mode: CoscheduleMode,
    },
    /// A native group.
    Native(&'v str),
}

/// How far a placeholder keeps others away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Isolation {
    /// Whether it must; else it would rather.
    pub required: bool,
    /// From the others of its namespace, or from all.
    pub scope: IsolationScope,
}

/// Which nodes a placeholder may be on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Bounds<'v> {
    /// Any.
    #[default]
    Anywhere,
    /// Any but these: the first of them, where they are more than a template should name.
    Except(Vec<&'v str>),
    /// This one.
    Only(&'v str),
}

impl Blueprint<'_> {
    /// The whole object.
    #[must_use]
    pub fn document(&self, policy: &PlaceholderPolicy) -> Value {
        let Name { namespace, name } = &self.name;
        let selector = json!({COMPONENT: COMPONENT_VALUE, INSTANCE: name});
        let mut labels = selector.clone();
        labels[PLACEHOLDER] = json!(name);
        let mut pod_labels = labels.clone();
        pod_labels[MEMBER] = json!(name);
        let mut metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        match &self.cause {
            Cause::Run { owner, key, mode } => {
                metadata["annotations"] = json!({MODE: mode::word(*mode), GROUP_KEY: key});
                let mut owner = reference(owner);
                // It must not hold up the end of its run.
                owner["blockOwnerDeletion"] = json!(false);
                owner["controller"] = json!(true);
                metadata["ownerReferences"] = json!([owner]);
            }
            Cause::Native(group) => metadata["annotations"] = json!({GROUP: group}),
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "serviceName": "",
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},
                "selector": {"matchLabels": selector},
                "template": {"metadata": {"labels": pod_labels}, "spec": self.pod(policy)},
                "volumeClaimTemplates": self.claim_templates(),
            },
        })
    }

    fn pod(&self, policy: &PlaceholderPolicy) -> Value {
        let template = self.template.and_then(Value::as_object);
        let taken = |key: &str| template.and_then(|template| template.get(key)).cloned();
        let mut pod = Map::new();
        for key in TAKEN {
            pod.extend(taken(key).map(|value| (key.to_owned(), value)));
        }
        if !policy.priority_class_name.is_empty() {
            pod.insert("priorityClassName".to_owned(), json!(policy.priority_class_name));
        }
        let node_selector = match self.node_selector.is_empty() {
            true => taken("nodeSelector").unwrap_or_default(),
            false => self
                .node_selector
                .iter()
                .map(|(key, value)| (String::from(&**key), json!(value)))
                .collect::<Map<_, _>>()
                .into(),
        };
        let windows = node_selector["kubernetes.io/os"] == "windows";
        if !node_selector.is_null() {
            pod.insert("nodeSelector".to_owned(), node_selector);
        }
        let security = taken("securityContext");
        let user = security.as_ref().and_then(|security| security["runAsUser"].as_i64());
        let container_security = match windows {
            true => json!({"runAsNonRoot": true}),
            false => {
                let mut context = json!({
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                    "runAsNonRoot": true,
                    "seccompProfile": {"type": "RuntimeDefault"},
                });
                // The run's own user may be one that its volumes or its cluster ask for. Root it is not.
                if user.is_none_or(|user| user == 0) {
                    context["runAsUser"] = json!(USER);
                }
                context
            }
        };
        pod.extend(security.map(|security| ("securityContext".to_owned(), security)));
        if let Some(account) = self.service_account {
            pod.insert("serviceAccountName".to_owned(), json!(account));
        }
        let amounts =
            json!({"cpu": policy.requests.cpu.as_str(), "memory": policy.requests.memory.as_str()});
        let container = json!({
            "name": COMPONENT_VALUE,
            "image": policy.image,
            "args": ["pause"],
            // Both alike: a quota on limits must not keep it out.
            "resources": {"requests": amounts, "limits": amounts},
            "securityContext": container_security,
            "volumeMounts": self.mounts(),
        });
        let rest = json!({
            "containers": [container],
            "volumes": volumes(&self.claims),
            "affinity": self.affinity(),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
        });
        if let Value::Object(rest) = rest {
            pod.extend(rest);
        }
        pod.into()
    }

    fn mounts(&self) -> Vec<Value> {
        let made = self.templates.iter().map(|(claim, _)| super::keys::template(claim));
        let mut mounts = mounts(&self.claims, 0);
        mounts.extend(made.enumerate().map(|(place, volume)| mount(&volume, "made", place)));
        mounts
    }

    fn claim_templates(&self) -> Vec<Value> {
        let templates = self.templates.iter().map(|(claim, template)| {
            let text = |key: &str| template["metadata"][key].as_object().cloned();
            let mut labels = text("labels").unwrap_or_default();
            labels.insert(PLACEHOLDER.to_owned(), json!(self.name.name));
            let mut metadata = json!({"name": super::keys::template(claim), "labels": labels});
            let mut annotations = text("annotations").unwrap_or_default();
            if let Cause::Run { owner, mode, .. } = &self.cause {
                // Without `blockOwnerDeletion`: the StatefulSet controller has no right to that.
                metadata["ownerReferences"] = json!([reference(owner)]);
                // What becomes of the claim at the run's end is settled now: the placeholder is gone by
                // then, and the mode in force may be another.
                annotations.insert(MODE.to_owned(), json!(mode::word(*mode)));
            }
            if !annotations.is_empty() {
                metadata["annotations"] = annotations.into();
            }
            json!({"metadata": metadata, "spec": template["spec"]})
        });
        templates.collect()
    }

    /// The required node terms of the template: those of the placeholder before its bounds. `None`: it
    /// has none that can be read.
    #[must_use]
    pub fn node_terms(&self) -> Option<Vec<NodeSelectorTerm>> {
        let affinity = &self.template?["affinity"]["nodeAffinity"];
        let terms = affinity[REQUIRED]["nodeSelectorTerms"].as_array()?;
        let terms = serde_json::from_value(Value::Array(terms.clone())).ok();
        terms.filter(|terms: &Vec<_>| !terms.is_empty())
    }

    /// The affinity: the template's, and after it what a placeholder needs. It holds the placeholder where
    /// members are.
    #[must_use]
    pub fn affinity(&self) -> Value {
        let own = self.template.map(|template| template["affinity"].clone());
        let mut affinity = match own {
            Some(Value::Object(affinity)) => Value::Object(affinity),
            _ => json!({}),
        };
        let mut others = json!({
            "labelSelector": {"matchLabels": {COMPONENT: COMPONENT_VALUE}},
            "topologyKey": HOSTNAME,
        });
        if self.isolation.scope == IsolationScope::Cluster {
            others["namespaceSelector"] = json!({});
        }
        match self.isolation.required {
            true => append(&mut affinity["podAntiAffinity"], REQUIRED, others),
            false => append(
                &mut affinity["podAntiAffinity"],
                PREFERRED,
                json!({"weight": OTHERS, "podAffinityTerm": others}),
            ),
        }
        self.bounds.write(&mut affinity);
        hold(&mut affinity, &self.name.name, true);
        affinity
    }
}

/// Holds the placeholder of this name where members are, or has it only drawn there. The latter, too, where
/// a run brings required pod affinity of its own: a pod counts only if it meets all required terms of the
/// newcomer. Members of such a run are bound by name, and there are none before the placeholder is bound.
pub fn hold(affinity: &mut Value, placeholder: &str, held: bool) {
    let members =
        json!({"labelSelector": {"matchLabels": {MEMBER: placeholder}}, "topologyKey": HOSTNAME});
    let drawn = json!({"weight": MEMBERS, "podAffinityTerm": members});
    let toward = &mut affinity["podAffinity"];
    for (list, own) in [(REQUIRED, &members), (PREFERRED, &drawn)] {
        let Some(terms) = toward.get_mut(list).and_then(Value::as_array_mut) else { continue };
        terms.retain(|term| term != own);
        if terms.is_empty()
            && let Some(toward) = toward.as_object_mut()
        {
            toward.remove(list);
        }
    }
    match held && toward.get(REQUIRED).is_none_or(Value::is_null) {
        true => append(toward, REQUIRED, members),
        false => append(toward, PREFERRED, drawn),
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// How much a placeholder is drawn to its members where it is not held to them. It must outweigh [`OTHERS`]
/// several times over: else another placeholder that has come to their node drives it off.
const MEMBERS: u32 = 100;

/// How much it is driven from each of the other placeholders. It counts twice, because theirs drive it
/// off as well. The scheduler scales scores, so that without members there any weight spreads as well
/// as the largest.
const OTHERS: u32 = 10;

fn append(affinity: &mut Value, list: &str, item: Value) {
    if !affinity.is_object() {
        *affinity = json!({});
    }
    match affinity[list].as_array_mut() {
        Some(items) => items.push(item),
        None => affinity[list] = json!([item]),
    }
}

impl Bounds<'_> {
    /// Adds what it asks for to every required node term, or as the only one.
    fn write(&self, affinity: &mut Value) {
        let mut requirements = match self {
            Self::Anywhere => return,
            Self::Only(node) => vec![on_node("In", node)],
            Self::Except(nodes) => nodes.iter().map(|node| on_node("NotIn", node)).collect(),
        };
        if requirements.is_empty() {
            return;
        }
        if !affinity["nodeAffinity"].is_object() {
            affinity["nodeAffinity"] = json!({});
        }
        let required = &mut affinity["nodeAffinity"][REQUIRED];
        if required["nodeSelectorTerms"].as_array().is_none_or(Vec::is_empty) {
            *required = json!({"nodeSelectorTerms": [{}]});
        }
        let Some(terms) = required["nodeSelectorTerms"].as_array_mut() else { return };
        requirements.truncate(MOST_EXCLUDED / terms.len().max(1));
        // Without one of its own the template has the one term that was just made.
        for term in terms.iter_mut().filter(|term| term.is_object()) {
            match term["matchFields"].as_array_mut() {
                Some(fields) => fields.extend(requirements.iter().cloned()),
                None => term["matchFields"] = requirements.clone().into(),
            }
        }
    }
}

fn on_node(operator: &str, node: &str) -> Value {
    json!({"key": "metadata.name", "operator": operator, "values": [node]})
}

fn reference(owner: &Owner) -> Value {
    json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": owner.name, "uid": owner.uid})
}

fn volumes(claims: &[&str]) -> Vec<Value> {
    let volumes = claims.iter().enumerate();
    volumes.map(|(place, claim)| volume(&format!("workspace-{place}"), claim)).collect()
}

fn volume(name: &str, claim: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
}

fn mounts(claims: &[&str], from: usize) -> Vec<Value> {
    let places = from..from + claims.len();
    places.map(|place| mount(&format!("workspace-{place}"), "claims", place)).collect()
}

fn mount(volume: &str, folder: &str, place: usize) -> Value {
    // It reads nothing there either.
    json!({"name": volume, "mountPath": format!("/{folder}/{place}"), "readOnly": true})
}

/// The volumes and mounts of a standing placeholder with further claims after what it has, and without
/// those that are not its own.
#[must_use]
pub fn with_claims(spec: &Value, claims: &[&str], without: &[&str]) -> (Value, Value) {
    let pod = &spec["template"]["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut volumes = list(&pod["volumes"]);
    let mut mounted = list(&pod["containers"][0]["volumeMounts"]);
    let goes = |volume: &mut Value| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        claim.is_some_and(|claim| without.contains(&claim))
    };
    for gone in volumes.extract_if(.., goes) {
        mounted.retain(|mount| mount["name"] != gone["name"]);
    }
    let taken =
        |volumes: &[Value], name: &str| volumes.iter().any(|volume| volume["name"] == *name);
    let mut place = 0;
    for claim in claims {
        while taken(&volumes, &format!("workspace-{place}")) {
            place += 1;
        }
        volumes.push(volume(&format!("workspace-{place}"), claim));
        mounted.push(mount(&format!("workspace-{place}"), "claims", place));
    }
    (volumes.into(), mounted.into())
}

/// Whether two affinities say the same, as far as the oldest API that is served knows them.
#[must_use]
pub fn same_affinity(stands: &Value, wanted: &Value) -> bool {
    let read = |value: &Value| serde_json::from_value::<Affinity>(value.clone()).ok();
    match (read(stands), read(wanted)) {
        (Some(stands), Some(wanted)) => stands == wanted,
        _ => stands == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn blueprint<'v>(name: &Name, template: Option<&'v Value>) -> Blueprint<'v> {
        static NO_LABELS: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);
        Blueprint {
            name: name.clone(),
            cause: Cause::Run {
                owner: Owner { name: "run".into(), uid: "uid-run".into() },
                key: "source",
                mode: CoscheduleMode::Workspaces,
            },
            claims: vec!["a", "b"],
            templates: Vec::new(),
            template,
            service_account: None,
            node_selector: &NO_LABELS,
            isolation: Isolation { required: false, scope: IsolationScope::Cluster },
            bounds: Bounds::Anywhere,
        }
    }

    fn name() -> Name {
        Name::new("ns", "affinity-assistant-0123456789")
    }

    fn document(blueprint: &Blueprint<'_>) -> Value {
        let mut policy = Policy::default().coschedule.placeholder;
        policy.image = "stowplan:1".to_owned();
        blueprint.document(&policy)
    }

    /// What becomes of it as the API server stores it: what it does not know is gone.
    fn pod(document: &Value) -> Value {
        let set: k8s_openapi::api::apps::v1::StatefulSet =
            serde_json::from_value(document.clone()).unwrap();
        serde_json::to_value(set.spec.unwrap().template.spec.unwrap()).unwrap()
    }

    #[test]
    fn the_whole_of_it_without_a_template() {
        let name = name();
        let document = document(&blueprint(&name, None));
        let labels = json!({
            "app.kubernetes.io/component": "affinity-assistant",
            "app.kubernetes.io/instance": "affinity-assistant-0123456789",
            "stowplan.dev/placeholder": "affinity-assistant-0123456789",
        });
        let mut pod_labels = labels.clone();
        pod_labels["stowplan.dev/coschedule-member"] = json!("affinity-assistant-0123456789");
        let amounts = json!({"cpu": "10m", "memory": "16Mi"});
        let expected = json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": "affinity-assistant-0123456789", "namespace": "ns", "labels": labels,
                "annotations": {"stowplan.dev/coschedule": "workspaces", "stowplan.dev/group-key": "source"},
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run",
                    "uid": "uid-run", "controller": true, "blockOwnerDeletion": false}],
            },
            "spec": {
                "replicas": 1, "serviceName": "", "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},
                "selector": {"matchLabels": {
                    "app.kubernetes.io/component": "affinity-assistant",
                    "app.kubernetes.io/instance": "affinity-assistant-0123456789",
                }},
                "template": {"metadata": {"labels": pod_labels}, "spec": {
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 1,
                    "affinity": {
                        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                            {"labelSelector": {"matchLabels": {"stowplan.dev/coschedule-member": "affinity-assistant-0123456789"}},
                             "topologyKey": "kubernetes.io/hostname"},
                        ]},
                        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 10, "podAffinityTerm": {
                                "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "affinity-assistant"}},
                                "namespaceSelector": {},
                                "topologyKey": "kubernetes.io/hostname"}},
                        ]},
                    },
                    "containers": [{
                        "name": "affinity-assistant", "image": "stowplan:1", "args": ["pause"],
                        "resources": {"requests": amounts, "limits": amounts},
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "volumeMounts": [
                            {"name": "workspace-0", "mountPath": "/claims/0", "readOnly": true},
                            {"name": "workspace-1", "mountPath": "/claims/1", "readOnly": true},
                        ],
                    }],
                    "volumes": [
                        {"name": "workspace-0", "persistentVolumeClaim": {"claimName": "a"}},
                        {"name": "workspace-1", "persistentVolumeClaim": {"claimName": "b"}},
                    ],
                }},
                "volumeClaimTemplates": [],
            },
        });
        assert_eq!(document, expected);
    }

    /// U18: who is isolated must be, who is not would rather be; in the namespace or everywhere.
    #[test]
    fn isolation_is_required_or_preferred_and_has_a_scope() {
        let name = name();
        for (required, list) in [(true, REQUIRED), (false, PREFERRED)] {
            for scope in [IsolationScope::Cluster, IsolationScope::Namespace] {
                let isolation = Isolation { required, scope };
                let affinity = Blueprint { isolation, ..blueprint(&name, None) }.affinity();
                let against = affinity["podAntiAffinity"].as_object().unwrap();
                assert_eq!(against.keys().collect::<Vec<_>>(), [list]);
                let term = &against[list][0];
                let term = if required { term } else { &term["podAffinityTerm"] };
                let everywhere = term.get("namespaceSelector") == Some(&json!({}));
                assert_eq!(everywhere, scope == IsolationScope::Cluster);
            }
        }
    }

    /// To its members it is held, unless it is let go; or unless the template has pod affinity of its own,
    /// beside which a term of ours would never be met. Nothing else changes.
    #[test]
    fn it_is_held_to_its_members_or_drawn() {
        let name = name();
        let own = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
        let with_own = json!({"affinity": {"podAffinity": {REQUIRED: [own]}}});
        let wish = json!({"weight": 7, "podAffinityTerm": own});
        let with_wish = json!({"affinity": {"podAffinity": {REQUIRED: [], PREFERRED: [wish]}}});
        let odd = json!({"affinity": {"podAffinity": {REQUIRED: "x", PREFERRED: 7}}});
        let null = json!({"affinity": {"podAffinity": {REQUIRED: null, PREFERRED: null}}});
        for (template, held, required, preferred) in [
            (None, true, 1, 0),
            (None, false, 0, 1),
            (Some(&with_wish), true, 1, 1),
            (Some(&with_wish), false, 0, 2),
            (Some(&with_own), true, 1, 1),
            (Some(&with_own), false, 1, 1),
            (Some(&odd), true, 0, 1),
            (Some(&null), true, 1, 0),
        ] {
            let made = blueprint(&name, template).affinity();
            let mut affinity = made.clone();
            hold(&mut affinity, &name.name, held);
            let toward = &affinity["podAffinity"];
            let count = |list: &str| toward[list].as_array().map_or(0, Vec::len);
            assert_eq!((count(REQUIRED), count(PREFERRED)), (required, preferred), "{toward}");
            let preferred = toward[PREFERRED].as_array().and_then(|list| list.last());
            let term = match preferred.map(|term| &term["podAffinityTerm"]) {
                Some(drawn) if *drawn != own => drawn,
                _ => &toward[REQUIRED][0],
            };
            assert_eq!(term["labelSelector"], json!({"matchLabels": {MEMBER: name.name}}));
            hold(&mut affinity, &name.name, true);
            assert_eq!(affinity, made, "there and back");
        }
    }

    /// U19, U20: what the template says comes first, and stays.
    #[test]
    fn the_templates_affinity_is_kept_before_ours() {
        let name = name();
        let preferred = json!({"weight": 50, "podAffinityTerm": {"topologyKey": "zone"}});
        let required = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
        let node = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]},
        ]}});
        let template = json!({"affinity": {
            "nodeAffinity": node,
            "podAntiAffinity": {PREFERRED: [preferred], REQUIRED: [required]},
        }});
        let affinity = blueprint(&name, Some(&template)).affinity();
        assert_eq!(affinity["nodeAffinity"], node);
        assert_eq!(affinity["podAntiAffinity"][REQUIRED], json!([required]));
        let list = affinity["podAntiAffinity"][PREFERRED].as_array().unwrap();
        assert_eq!((list.len(), &list[0], &list[1]["weight"]), (2, &preferred, &json!(10)));
        assert!(same_affinity(&affinity, &affinity));
        assert!(!same_affinity(&affinity, &json!({})));
    }

    /// U21: these of the pod template, and no other.
    #[test]
    fn the_template_gives_what_tekton_takes_of_it() {
        let name = name();
        let template = json!({
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "nodeSelector": {"disk": "ssd"},
            "imagePullSecrets": [{"name": "s"}],
            "securityContext": {"runAsUser": 1001, "fsGroup": 1001},
            "priorityClassName": "high",
            "hostAliases": [{"ip": "1.1.1.1"}],
            "runtimeClassName": "gvisor", "schedulerName": "mine", "volumes": [{"name": "v"}],
            "topologySpreadConstraints": [], "hostNetwork": true, "env": [{"name": "x"}],
        });
        let plain = pod(&document(&blueprint(&name, None)));
        let of_template =
            Blueprint { service_account: Some("bot"), ..blueprint(&name, Some(&template)) };
        let with = pod(&document(&of_template));
        for key in [
            "tolerations",
            "nodeSelector",
            "imagePullSecrets",
            "securityContext",
            "priorityClassName",
        ] {
            assert_eq!(with[key], template[key], "{key}");
            assert!(plain.get(key).is_none(), "{key}");
        }
        assert_eq!(with["serviceAccountName"], "bot");
        assert_eq!(with["automountServiceAccountToken"], false);
        for key in [
            "hostAliases",
            "runtimeClassName",
            "schedulerName",
            "topologySpreadConstraints",
            "hostNetwork",
        ] {
            assert!(with.get(key).is_none(), "{key}");
        }
        assert_eq!(with["volumes"], plain["volumes"]);
        assert!(
            with["containers"][0]["securityContext"].get("runAsUser").is_none(),
            "the run's own"
        );
    }

    /// U24.
    #[test]
    fn the_containers_rights_by_operating_system_and_user() {
        let name = name();
        let context = |template: &Value| {
            pod(&document(&blueprint(&name, Some(template))))["containers"][0]["securityContext"]
                .clone()
        };
        let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
        assert_eq!(context(&windows), json!({"runAsNonRoot": true}));
        let root = json!({"securityContext": {"runAsUser": 0}});
        assert_eq!(context(&root)["runAsUser"], 65_532, "never root");
    }

    #[test]
    fn the_groups_node_selector_and_the_policys_priority_win() {
        let name = name();
        let template = json!({"nodeSelector": {"disk": "ssd"}, "priorityClassName": "low"});
        let labels: Labels = [("arch".into(), "arm64".into())].into();
        let blueprint = Blueprint { node_selector: &labels, ..blueprint(&name, Some(&template)) };
        let mut policy = Policy::default().coschedule.placeholder;
        policy.priority_class_name = "placeholders".to_owned();
        let pod = pod(&blueprint.document(&policy));
        assert_eq!(pod["nodeSelector"], json!({"arch": "arm64"}));
        assert_eq!(pod["priorityClassName"], "placeholders");
    }

    #[test]
    fn bounds_are_added_to_every_term() {
        let name = name();
        let terms = |template: Option<&Value>, bounds| {
            let affinity = Blueprint { bounds, ..blueprint(&name, template) }.affinity();
            affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].clone()
        };
        assert_eq!(terms(None, Bounds::Anywhere), Value::Null);
        assert_eq!(terms(None, Bounds::Except(Vec::new())), Value::Null);
        assert_eq!(
            terms(None, Bounds::Only("n1")),
            json!([{"matchFields": [on_node("In", "n1")]}])
        );
        let zone = |zone: &str| json!([{"key": "zone", "operator": "In", "values": [zone]}]);
        let template = json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
            {"matchExpressions": zone("a")},
            {"matchExpressions": zone("b"), "matchFields": [on_node("NotIn", "n9")]},
        ]}}}});
        assert_eq!(
            terms(Some(&template), Bounds::Except(vec!["n1", "n2"])),
            json!([
                {"matchExpressions": zone("a"), "matchFields": [on_node("NotIn", "n1"), on_node("NotIn", "n2")]},
                {"matchExpressions": zone("b"), "matchFields": [on_node("NotIn", "n9"), on_node("NotIn", "n1"), on_node("NotIn", "n2")]},
            ])
        );
        let many: Vec<String> = (0..10_000).map(|n| format!("n{n}")).collect();
        let all = terms(Some(&template), Bounds::Except(many.iter().map(String::as_str).collect()));
        assert_eq!(all[0]["matchFields"].as_array().unwrap().len(), MOST_EXCLUDED / 2);
        assert_eq!(all[0]["matchFields"][0], on_node("NotIn", "n0"), "the first are not cut off");
    }

    #[test]
    fn a_template_of_any_shape_makes_an_object() {
        let name = name();
        for template in [
            json!(null),
            json!([]),
            json!("é"),
            json!({"affinity": null}),
            json!({"affinity": []}),
            json!({"affinity": {"podAntiAffinity": [], "nodeAffinity": 7}, "nodeSelector": "x"}),
            json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [null, 7]}}}}),
        ] {
            let bounds = Bounds::Only("n1");
            let document = document(&Blueprint { bounds, ..blueprint(&name, Some(&template)) });
            assert_eq!(document["spec"]["replicas"], 1, "{template}");
        }
    }

    #[test]
    fn claims_of_templates_are_made_for_the_run_and_mounted() {
        let name = name();
        let template = json!({
            "metadata": {"name": "src", "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [1]},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
        });
        let templates = vec![("src-0123456789".to_owned(), &template), ("x".repeat(75), &template)];
        let document =
            document(&Blueprint { claims: vec!["a"], templates, ..blueprint(&name, None) });
        let made = &document["spec"]["volumeClaimTemplates"];
        assert_eq!(
            made[0],
            json!({
                "metadata": {
                    "name": "src-0123456789",
                    "labels": {"a": "b", "stowplan.dev/placeholder": "affinity-assistant-0123456789"},
                    "annotations": {"c": "d", "stowplan.dev/coschedule": "workspaces"},
                    "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": "uid-run"}],
                },
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
            })
        );
        assert_eq!(made[1]["metadata"]["name"].as_str().unwrap().len(), 63);
        let mounts = document["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].clone();
        let names: Vec<_> = mounts.as_array().unwrap().iter().map(|mount| &mount["name"]).collect();
        assert_eq!(
            names,
            ["workspace-0", "src-0123456789", made[1]["metadata"]["name"].as_str().unwrap()]
        );
    }

    #[test]
    fn further_claims_come_after_what_stands() {
        let name = name();
        let mut document = document(&blueprint(&name, None));
        let spec = &mut document["spec"];
        spec["template"]["spec"]["volumes"][0]["name"] = json!("workspace-2");
        let (volumes, mounts) = with_claims(spec, &["c", "d"], &[]);
        let names: Vec<_> =
            volumes.as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
        assert_eq!(names, ["workspace-2", "workspace-1", "workspace-0", "workspace-3"]);
        assert_eq!(mounts.as_array().unwrap().len(), 4);
        let (volumes, mounts) = with_claims(&json!({}), &["c"], &[]);
        assert_eq!(volumes, json!([volume("workspace-0", "c")]));
        assert_eq!(mounts, json!([mount("workspace-0", "claims", 0)]));
    }

    #[test]
    fn claims_that_are_anothers_go_with_their_mounts() {
        let (kept, gone) = (volume("workspace-1", "b"), volume("workspace-0", "a"));
        let mounts = mounts(&["a", "b"], 0);
        let spec = json!({"template": {"spec": {
            "volumes": [gone, kept], "containers": [{"volumeMounts": mounts}],
        }}});
        let (volumes, mounted) = with_claims(&spec, &["c"], &["a", "unknown"]);
        assert_eq!(volumes, json!([kept, volume("workspace-0", "c")]));
        assert_eq!(mounted, json!([mounts[1], mounts[0]]));
    }

    #[test]
    fn a_native_group_has_no_owner() {
        let name = name();
        let document = document(&Blueprint { cause: Cause::Native("g"), ..blueprint(&name, None) });
        assert_eq!(
            document["metadata"]["annotations"],
            json!({"stowplan.dev/coschedule-group": "g"})
        );
        assert!(document["metadata"].get("ownerReferences").is_none());
    }
}
