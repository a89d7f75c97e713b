//! IBM Streams host constraints (Streams design, "Host Constraints", 2021): where a processing
//! element, which is one pod, may and may not run.
//!
//! [`request`] reads the annotations, [`job`] finds the StreamsJob that a pod belongs to, [`resolve`]
//! asks the View which nodes they mean, and the intents are made here.

pub mod guard;
pub mod job;
pub mod keys;
pub mod reconcile;
pub mod request;
pub mod resolve;
pub mod token;

use super::{Outcome, System};
use crate::placement::intent::{
    Enforcement, HOSTNAME, Intent, LabelRequirement, Operator, PodTerm, Selector, Wish,
    label_requirement, on_labels,
};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning, quoted, shorten};
use crate::policy::{Compat, Policy};
use crate::view::View;
use crate::view::streams_job::closure::Place;
use job::{Joined, Member};
use request::Request;
use token::Token;

/// The system.
pub const SYSTEM: System = System {
    name: NAME,
    keys: keys::ANNOTATIONS,
    request: Some(place),
    claim: None,
    concerns: Some(job::concerns),
    plan: Some(reconcile::plan),
    enabled: |policy| policy.streams.enabled,
};

const NAME: &str = "streams";

/// What a pod's StreamsJob asks for, or else its annotations, as intents.
fn place(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut placing = Placing { pod, view, policy, of_job: None, outcome: Outcome::default() };
    match placing.join() {
        Joined::Settled => {}
        Joined::Member(member) => placing.as_member(&member),
        Joined::Refused => {
            // What is wrong with the annotations by themselves is told in the same answer.
            Request::read(pod, true, &mut placing.outcome);
        }
        Joined::None => {
            let request = Request::read(pod, false, &mut placing.outcome);
            let location = placing.location(&request);
            placing.colocation(&request, location.as_deref());
            placing.exlocation(&request);
            placing.isolation(&request);
        }
    }
    placing.outcome
}

/// One pod on its way through the constraints.
struct Placing<'p> {
    pod: &'p Pod<'p>,
    view: &'p View,
    policy: &'p Policy,
    /// What findings are about, where it is no annotation: the pod's place in its StreamsJob.
    of_job: Option<String>,
    outcome: Outcome,
}

impl Placing<'_> {
    /// What its StreamsJob says of a pod.
    fn as_member(&mut self, member: &Member<'_>) {
        let request = Request::read(self.pod, true, &mut self.outcome);
        self.compare(member, &request);
        self.of_job =
            Some(format!("StreamsJob {}, processing element {}", member.name, member.element.name));
        let group = member.unit.group.as_deref();
        self.outcome.holds.push(job::entry(member.name, &member.element.name, group));

        let places: Vec<Place> = member.places().map(|claim| claim.place.clone()).collect();
        let mut node = None;
        for place in &places {
            let said = member.said(place);
            let found = self.place(member, place, &said);
            node = node.or(found);
        }
        self.together(member, node.as_deref());
        let request = Request {
            exlocation: member.exlocation(),
            isolation: None,
            enforcement: member.enforcement(),
            ..request
        };
        self.exlocated(&request, group);
        self.alone(member, &request);
        let constrained = !self.outcome.intents.is_empty();
        if self.pod.is_controlled_by("DaemonSet") && constrained {
            self.find(
                Reason::DaemonSetPod,
                keys::STREAMS_JOB,
                "the pod belongs to a DaemonSet, which gives each node one pod".to_owned(),
                "use a Deployment, a StatefulSet or a Job",
            );
        }
    }

    /// Colocation in a job: a label for each token, and one for the group, on which alone the pod's
    /// one term is: several required terms would have to be met by one pod (which `compat: upstream` does
    /// not change).
    fn together(&mut self, member: &Member<'_>, node: Option<&str>) {
        let key = keys::HOST_COLOCATION;
        for token in member.colocation() {
            let label = token.label_key(keys::COLOCATION_LABEL_PREFIX);
            let value = token.label_value();
            self.wish(key, token.as_str(), Wish::Label { key: label, value });
        }
        let Some(group) = member.unit.group.as_deref() else { return };
        let settled = self.pod.label(keys::GROUP) == Some(group);
        let enforcement = member.enforcement();
        if let Some(node) = node.filter(|_| !settled && enforcement == Enforcement::Required) {
            let nodes = self.view.colocation_nodes(self.pod.namespace, (keys::GROUP, group), None);
            if !nodes.is_empty() && !nodes.contains(node) {
                let there: Vec<_> = nodes.into_iter().collect();
                let problem = format!(
                    "its group {group} runs on node {}, and it must go to node {node}",
                    there.join(", ")
                );
                self.find(Reason::GroupElsewhere, key, problem, "move the group first");
            }
        }
        let requirements = vec![label_requirement(keys::GROUP, Operator::In, group)];
        let selector = Selector::Expressions { requirements, marks: 1, other_keys: &[] };
        let term = PodTerm { enforcement, selector };
        let value = group.to_owned();
        self.wish(keys::GROUP, group, Wish::Label { key: keys::GROUP.to_owned(), value });
        self.wish(keys::GROUP, group, Wish::PodAffinity(term));
        let tokens = member.colocation();
        let what = manner(enforcement, "one node for all", "near the others");
        match tokens.is_empty() {
            true => self.holds(keys::GROUP, group, what),
            false => tokens.iter().for_each(|token| self.holds(key, token.as_str(), what)),
        }
        self.warn_of_node_name(key);
    }

    /// Isolation in a job. Only `compat: upstream` touches the other elements.
    fn alone(&mut self, member: &Member<'_>, request: &Request) {
        let key = keys::HOST_ISOLATION;
        if !self.upstream() {
            let mut operators = member.element.operators.iter();
            let Some(operator) = operators.find(|operator| operator.host_isolation) else { return };
            let isolation = Some(operator.name.clone());
            let request = Request {
                isolation,
                job: request.job.clone(),
                processing_element: request.processing_element.clone(),
                enforcement: request.enforcement,
                ..Request::default()
            };
            self.outcome.findings.extend(request.check_isolation().err());
            return self.isolation(&request);
        }
        for by in &member.job.closure.isolated {
            let Some(operator) = member.operator(*by) else { continue };
            // A job with an operator whose name is none is not accepted.
            let Ok(token) = Token::of_operator(&operator.name) else { continue };
            let label = token.label_key(keys::ISOLATION_LABEL_PREFIX);
            let value = token.label_value();
            if by.element != member.index {
                self.wish(key, token.as_str(), Wish::Label { key: label, value });
                continue;
            }
            let requirements = vec![label_requirement(label, Operator::In, &value)];
            let selector = Selector::Expressions { requirements, marks: 1, other_keys: &[] };
            let term = PodTerm { enforcement: request.enforcement, selector };
            self.wish(key, token.as_str(), Wish::PodAntiAffinity(term));
            let what =
                manner(request.enforcement, "no other pod of job", "rather no other pod of job");
            self.holds(key, token.as_str(), &format!("{what} {}", member.name));
            self.warn_of_node_name(key);
        }
    }

    fn upstream(&self) -> bool {
        self.policy.streams.compat == Compat::Upstream
    }

    fn wish(&mut self, key: &'static str, value: &str, wish: Wish) {
        let why = cause(key, value);
        self.outcome.intents.push(Intent { system: NAME, key, why, wish });
    }

    fn holds(&mut self, key: &'static str, value: &str, what: &str) {
        self.outcome.holds.push([&cause(key, value), ": ", what].concat());
    }

    fn find(&mut self, reason: Reason, key: &str, problem: String, remedy: &str) {
        let subject = self.subject(key);
        self.outcome.findings.push(Finding::new(reason, subject, problem, remedy));
    }

    /// What a finding about a constraint is about: its annotation, or the pod's place in its job.
    fn subject(&self, key: &str) -> String {
        self.of_job.clone().unwrap_or_else(|| key.to_owned())
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
        if !self.upstream() {
            requirements.extend(request.job.as_deref().map(same_job));
        }
        let selector = Selector::Expressions { requirements, marks: 1, other_keys: &[keys::JOB] };
        let term = PodTerm { enforcement: request.enforcement, selector };
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
        self.exlocated(request, None);
    }

    /// The same. The members of a group of a job carry each other's tokens, so that they are told from
    /// others by the group.
    fn exlocated(&mut self, request: &Request, group: Option<&str>) {
        let key = keys::HOST_EXLOCATION;
        for token in &request.exlocation {
            let label = token.label_key(keys::EXLOCATION_LABEL_PREFIX);
            let value = token.label_value();
            let mut requirements = vec![label_requirement(label.clone(), Operator::In, &value)];
            if !self.upstream() {
                requirements.extend(request.job.as_deref().map(same_job));
            }
            match group {
                // Under `compat: upstream` too: the pod would be kept away from those it must be with.
                Some(group) => {
                    requirements.push(label_requirement(keys::GROUP, Operator::NotIn, group));
                }
                // Without this a rollout waits for ever: the new pod of a processing element is kept
                // away by the old one, which leaves only when the new one is ready.
                None if !self.upstream() => {
                    requirements.extend(request.processing_element.as_deref().map(other_element));
                }
                None => {}
            }
            let other_keys = &[keys::JOB, keys::PROCESSING_ELEMENT, keys::GROUP];
            let selector = Selector::Expressions { requirements, marks: 1, other_keys };
            let term = PodTerm { enforcement: request.enforcement, selector };
            self.wish(key, token.as_str(), Wish::Label { key: label, value });
            self.wish(key, token.as_str(), Wish::PodAntiAffinity(term));
            if !self.upstream() {
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
        if self.upstream() {
            self.warn(
                key,
                "compat upstream: written as without compat; its own form needs a StreamsJob",
            );
        }
        let requirements = vec![same_job(job), other_element(element)];
        let marks = requirements.len();
        let selector = Selector::Expressions { requirements, marks, other_keys: &[] };
        let term = PodTerm { enforcement: request.enforcement, selector };
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
    let own = key.strip_prefix(keys::PREFIX).or_else(|| key.strip_prefix("stowplan.dev/"));
    let name = own.unwrap_or(key);
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
