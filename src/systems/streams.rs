//! IBM Streams host constraints (Streams design, "Host Constraints", 2021): where a processing
//! element, which is one pod, may and may not run.
//!
//! [`request`] reads the annotations, [`resolve`] asks the View which nodes they mean, and the
//! intents are made here.

pub mod keys;
pub mod request;
pub mod resolve;
pub mod token;

use super::{Outcome, System};
use crate::placement::intent::{
    Enforcement, HOSTNAME, Intent, LabelRequirement, Operator, PodTerm, Wish, label_requirement,
    on_labels,
};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning, quoted, shorten};
use crate::policy::{Compat, Policy};
use crate::view::View;
use request::Request;
use token::Token;

/// The system.
pub const SYSTEM: System = System {
    name: NAME,
    keys: keys::ANNOTATIONS,
    request: Some(place),
    enabled: |policy| policy.streams.enabled,
};

const NAME: &str = "streams";

/// What the annotations of a pod ask for, as intents.
fn place(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut placing = Placing { pod, view, policy, outcome: Outcome::default() };
    let request = Request::read(pod, &mut placing.outcome);
    if pod.annotation(keys::STREAMS_JOB).is_some() {
        placing.warn(
            keys::STREAMS_JOB,
            "this release does not serve StreamsJobs; the annotation has no effect",
        );
    }
    let location = placing.location(&request);
    placing.colocation(&request, location.as_deref());
    placing.exlocation(&request);
    placing.isolation(&request);
    placing.outcome
}

/// One pod on its way through the constraints.
struct Placing<'p> {
    pod: &'p Pod<'p>,
    view: &'p View,
    policy: &'p Policy,
    outcome: Outcome,
}

impl Placing<'_> {
    fn seed(&self) -> bool {
        self.policy.streams.compat == Compat::Seed
    }

    fn wish(&mut self, key: &'static str, value: &str, wish: Wish) {
        let why = cause(key, value);
        self.outcome.intents.push(Intent { system: NAME, key, why, wish });
    }

    fn holds(&mut self, key: &'static str, value: &str, what: &str) {
        self.outcome.holds.push([&cause(key, value), ": ", what].concat());
    }

    fn find(&mut self, reason: Reason, key: &str, problem: String, remedy: &str) {
        self.outcome.findings.push(Finding::new(reason, key, problem, remedy));
    }

    fn warn(&mut self, key: &str, text: &str) {
        self.outcome.warnings.push(Warning::new(key, text));
    }

    /// A node name that is there already bypasses the scheduler, which alone would see to `key`.
    fn warn_of_node_name(&mut self, key: &str) {
        if self.pod.node_name.is_some() {
            self.warn(key, "spec.nodeName bypasses the scheduler, so nobody sees to it");
        }
    }

    /// `hostColocation`: one node for all pods with the token. `node` is where this pod must go
    /// for another reason.
    fn colocation(&mut self, request: &Request, node: Option<&str>) {
        let key = keys::HOST_COLOCATION;
        let [token] = request.colocation.as_slice() else { return };
        let label = token.label_key(keys::COLOCATION_LABEL_PREFIX);
        let value = token.label_value();

        if request.host.is_some() || request.pool.is_some() {
            self.warn(key, "the group's other pods do not inherit this pod's host or pool");
        }
        let settled = self.pod.label(&label) == Some(&*value);
        // A preference does not forbid the node.
        let binding = request.enforcement == Enforcement::Required;
        if let Some(node) = node.filter(|_| binding && !settled) {
            let job = request.job.as_deref();
            let group = self.view.colocation_nodes(self.pod.namespace, (&label, &value), job);
            if !group.is_empty() && !group.contains(node) {
                let there: Vec<_> = group.into_iter().collect();
                self.find(
                    Reason::GroupElsewhere,
                    key,
                    format!(
                        "the group {} runs on node {}, and this pod must go to node {node}",
                        quoted(token.as_str()),
                        there.join(", ")
                    ),
                    "name the group's node as host, or move the group first",
                );
            }
        }

        let mut requirements = vec![label_requirement(label.clone(), Operator::In, &value)];
        if !self.seed() {
            requirements.extend(request.job.as_deref().map(same_job));
        }
        let term = PodTerm {
            enforcement: request.enforcement,
            requirements,
            marks: 1,
            other_keys: &[keys::JOB],
        };
        self.wish(key, token.as_str(), Wish::Label { key: label, value });
        self.wish(key, token.as_str(), Wish::PodAffinity(term));
        self.holds(
            key,
            token.as_str(),
            manner(request.enforcement, "one node for all", "near the others"),
        );
        self.warn_of_node_name(key);
    }

    /// `hostExlocation`: pairwise different nodes for all pods with the token.
    fn exlocation(&mut self, request: &Request) {
        let key = keys::HOST_EXLOCATION;
        for token in &request.exlocation {
            let label = token.label_key(keys::EXLOCATION_LABEL_PREFIX);
            let value = token.label_value();
            let mut requirements = vec![label_requirement(label.clone(), Operator::In, &value)];
            if !self.seed() {
                requirements.extend(request.job.as_deref().map(same_job));
                // Without this a rollout waits for ever: the new pod of a processing element is kept
                // away by the old one, which leaves only when the new one is ready.
                requirements.extend(request.processing_element.as_deref().map(other_element));
            }
            let term = PodTerm {
                enforcement: request.enforcement,
                requirements,
                marks: 1,
                other_keys: &[keys::JOB, keys::PROCESSING_ELEMENT],
            };
            self.wish(key, token.as_str(), Wish::Label { key: label, value });
            self.wish(key, token.as_str(), Wish::PodAntiAffinity(term));
            if !self.seed() {
                self.on_named_nodes_only(key, token.as_str(), request.enforcement);
            }
            self.holds(
                key,
                token.as_str(),
                manner(request.enforcement, "a node each", "rather a node each"),
            );
        }
        if !request.exlocation.is_empty() {
            self.warn_of_node_name(key);
        }
    }

    /// `hostIsolation`: no other processing element of the job on the node.
    fn isolation(&mut self, request: &Request) {
        let key = keys::HOST_ISOLATION;
        let Some(operator) = &request.isolation else { return };
        let (Some(job), Some(element)) = (&request.job, &request.processing_element) else {
            return;
        };
        if self.seed() {
            self.warn(
                key,
                "compat seed: written as without compat; its own form needs a StreamsJob",
            );
        }
        let requirements = vec![same_job(job), other_element(element)];
        let term = PodTerm {
            enforcement: request.enforcement,
            marks: requirements.len(),
            requirements,
            other_keys: &[],
        };
        self.wish(key, operator, Wish::PodAntiAffinity(term));
        self.on_named_nodes_only(key, operator, request.enforcement);
        let what = manner(request.enforcement, "no other pod of job", "rather no other pod of job");
        self.holds(key, operator, &[what, " ", job].concat());
        self.warn_of_node_name(key);
    }

    /// A node without the topology's label satisfies every anti-affinity in silence.
    fn on_named_nodes_only(&mut self, key: &'static str, value: &str, enforcement: Enforcement) {
        if enforcement == Enforcement::Required {
            self.wish(key, value, Wish::NodeAffinity(vec![on_labels(&[(HOSTNAME, None)])]));
        }
    }
}

fn manner(
    enforcement: Enforcement,
    required: &'static str,
    preferred: &'static str,
) -> &'static str {
    match enforcement {
        Enforcement::Required => required,
        Enforcement::Preferred => preferred,
    }
}

fn same_job(job: &str) -> LabelRequirement {
    label_requirement(keys::JOB, Operator::In, job)
}

fn other_element(element: &str) -> LabelRequirement {
    label_requirement(keys::PROCESSING_ELEMENT, Operator::NotIn, element)
}

/// An annotation and its value in short: `host-colocation=together`.
fn cause(key: &str, value: &str) -> String {
    let name = key.strip_prefix(keys::PREFIX).unwrap_or(key);
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'[' | b']');
    if value.len() <= 80 && value.bytes().all(plain) {
        return [name, "=", value].concat();
    }
    let value: String = shorten(value, 80).chars().flat_map(char::escape_debug).collect();
    format!("{name}={value}")
}

/// What a token of an annotation is called in findings.
fn named(token: &Token) -> String {
    quoted(token.as_str())
}
