//! Translates colocation, exlocation and isolation into pod affinity and anti-affinity.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::request::{Request, element_of, job_of, missing_labels};
use super::token::Token;
use super::{Placing, keys};
use crate::kubernetes::HOSTNAME;
use crate::placement::intent::{
    Change, Enforcement, Operator, PodTerm, Selector, label_requirement, on_labels,
};
use crate::placement::reason::{Reason, quoted};

impl Placing<'_> {
    /// `hostColocation`: all pods with the token run on one node. `node` is the node that the pod's
    /// host or pool requires, if it is only one.
    pub(super) fn colocate(&mut self, request: &Request, node: Option<&str>) {
        let key = keys::HOST_COLOCATION;
        let [token] = request.colocation.as_slice() else { return };
        let identity = self.label_by(key, token, keys::COLOCATION_LABEL_PREFIX);
        if request.host.is_some() || request.pool.is_some() {
            self.warn(key, "the group's other pods do not inherit this pod's host or pool");
        }
        let own_job = job_of(self.pod);
        let enforcement = request.enforcement;
        if let Some((node, others)) =
            self.group_elsewhere((&identity.key, &token.label_value()), own_job, node, enforcement)
        {
            let problem = format!(
                "the group {} runs on node {others}, and this pod must go to node {node}",
                quoted(token.as_str())
            );
            let remedy = "name the group's node as host, or move the group first";
            self.report(Reason::GroupElsewhere, key, problem, remedy);
        }

        let job = own_job.filter(|_| !self.is_compatible());
        if own_job.is_none() && !self.is_compatible() {
            let effect = "it shares a node with all pods of the namespace that have the token";
            self.warn_about_labels(key, &format!("no label {}", keys::JOB), effect);
        }
        let selector = Selector::Expressions {
            identity: vec![identity],
            further: job.map(same_job).into_iter().collect(),
            may_also_have: &[keys::JOB],
        };
        let term = PodTerm { enforcement: request.enforcement, selector };
        self.change(key, token.as_str(), Change::PodAffinity(term));
        let decision = by_enforcement(request.enforcement, "one node for all", "near the others");
        self.record(key, token.as_str(), decision);
        self.warn_about_node_name(key);
    }

    /// `hostExlocation`: no two pods with the token run on one node. The pods of a `group` of a
    /// StreamsJob share their tokens, so the pods of the same group are exempt.
    pub(super) fn exlocate(
        &mut self,
        tokens: &[Token],
        enforcement: Enforcement,
        group: Option<&str>,
    ) {
        let key = keys::HOST_EXLOCATION;
        let job = job_of(self.pod);
        for token in tokens {
            let identity = self.label_by(key, token, keys::EXLOCATION_LABEL_PREFIX);
            let mut further = Vec::new();
            if !self.is_compatible() {
                further.extend(job.map(same_job));
            }
            match group {
                // Under `compat: upstream` too: otherwise the pod could not join its own group.
                Some(group) => {
                    further.push(label_requirement(keys::GROUP, Operator::NotIn, group));
                }
                // Otherwise a rollout might never finish: the old pod of a processing element would
                // exclude the new one from its node, and is deleted only when the new one is ready.
                None if !self.is_compatible() => {
                    further.extend(element_of(self.pod).map(other_element));
                }
                None => {}
            }
            let selector = Selector::Expressions {
                identity: vec![identity],
                further,
                may_also_have: &[keys::JOB, keys::PROCESSING_ELEMENT, keys::GROUP],
            };
            let term = PodTerm { enforcement, selector };
            self.change(key, token.as_str(), Change::PodAntiAffinity(term));
            if !self.is_compatible() {
                self.require_hostname_label(key, token.as_str(), enforcement);
            }
            let decision = by_enforcement(enforcement, "a node each", "rather a node each");
            self.record(key, token.as_str(), decision);
        }
        if tokens.is_empty() {
            return;
        }
        self.warn_about_node_name(key);
        if let Some(missing) = missing_labels(self.pod).filter(|_| !self.is_compatible()) {
            let effect = match job {
                None => "it is kept apart from all pods of the namespace that have the token",
                Some(_) => "a rolling update needs another node for the pod that replaces it",
            };
            self.warn_about_labels(key, &missing, effect);
        }
    }

    /// `hostIsolation`: no other processing element of the job runs on the pod's node.
    pub(super) fn isolate(&mut self, operator: &str, enforcement: Enforcement) {
        let key = keys::HOST_ISOLATION;
        let (Some(job), Some(element)) = (job_of(self.pod), element_of(self.pod)) else { return };
        if self.is_compatible() {
            self.warn(
                key,
                "compat upstream: written as without compat; its own form needs a StreamsJob",
            );
        }
        let selector = Selector::Expressions {
            identity: vec![same_job(job), other_element(element)],
            further: Vec::new(),
            may_also_have: &[],
        };
        let term = PodTerm { enforcement, selector };
        self.change(key, operator, Change::PodAntiAffinity(term));
        self.require_hostname_label(key, operator, enforcement);
        let decision =
            by_enforcement(enforcement, "no other pod of job", "rather no other pod of job");
        self.record(key, operator, &[decision, " ", job].concat());
        self.warn_about_node_name(key);
    }

    /// Gives the pod the label of a token, and returns the requirement that selects all pods with it.
    pub(super) fn label_by(
        &mut self,
        key: &'static str,
        token: &Token,
        prefix: &str,
    ) -> LabelSelectorRequirement {
        let (label, value) = (token.label_key(prefix), token.label_value());
        let requirement = label_requirement(label.clone(), Operator::In, &value);
        self.change(key, token.as_str(), Change::Label { key: label, value });
        requirement
    }

    /// Returns the one node on which the pod must be, and the nodes of its colocation group if that runs
    /// only on others. `label` is the key and the value of the group's label; `job` is the job of the group's
    /// pods, if only those count.
    pub(super) fn group_elsewhere<'n>(
        &self,
        label: (&str, &str),
        job: Option<&str>,
        node: Option<&'n str>,
        enforcement: Enforcement,
    ) -> Option<(&'n str, String)> {
        // A preferred term does not exclude the node, and a pod with the label is in the group already.
        let is_held =
            enforcement == Enforcement::Required && self.pod.label(label.0) != Some(label.1);
        let node = node.filter(|_| is_held)?;
        let nodes = self.view.streams_pods.nodes_of_group(self.pod.namespace, label, job);
        let is_elsewhere = !nodes.is_empty() && !nodes.contains(node);
        is_elsewhere.then(|| (node, nodes.into_iter().collect::<Vec<_>>().join(", ")))
    }

    /// Warns about the effect of missing labels.
    fn warn_about_labels(&mut self, key: &str, missing: &str, effect: &str) {
        let text = format!("the pod has {missing}, so {effect}; label it with its job and element");
        self.warn(key, &text);
    }

    /// Excludes nodes without the hostname label, if there are any: the scheduler takes every
    /// anti-affinity by hostname as satisfied there. Karpenter makes no nodes for pods with this
    /// requirement, so they have it only where it is needed. A decision of an earlier round is kept: the
    /// controller corrects pods that wait when such a node joins.
    fn require_hostname_label(&mut self, key: &'static str, value: &str, enforcement: Enforcement) {
        if enforcement == Enforcement::Required
            && self.view.node_marks.has_nameless()
            && self.recorded(key, value).is_none()
        {
            self.change(key, value, Change::NodeAffinity(vec![on_labels(&[(HOSTNAME, None)])]));
        }
    }
}

/// Selects the text of a record by the enforcement.
pub(super) fn by_enforcement(
    enforcement: Enforcement,
    required: &'static str,
    preferred: &'static str,
) -> &'static str {
    match enforcement {
        Enforcement::Required => required,
        Enforcement::Preferred => preferred,
    }
}

fn same_job(job: &str) -> LabelSelectorRequirement {
    label_requirement(keys::JOB, Operator::In, job)
}

fn other_element(element: &str) -> LabelSelectorRequirement {
    label_requirement(keys::PROCESSING_ELEMENT, Operator::NotIn, element)
}
