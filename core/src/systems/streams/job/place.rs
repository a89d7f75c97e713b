//! A pod as a member of its StreamsJob, and how it is placed.

use super::super::constraints::by_enforcement;
use super::super::request::{Request, Source, check_isolation};
use super::super::token::{TOKEN, Token};
use super::super::{NAME, Placing, keys};
use super::format_entry;
use super::placement::{Restriction, names_host, needs_placement};
use crate::kubernetes::required_node_terms;
use crate::placement::affinity::bound_to;
use crate::placement::intent::{
    self, Change, Enforcement, PodTerm, Selector, label_requirement, off_nodes, on_node,
};
use crate::placement::reason::Reason;
use crate::placement::record;
use crate::systems::check::words::some;
use crate::systems::streams::api::streams_job::{
    self as api, Enforcement as Wanted, ProcessingElement, StreamsJobSpec,
};
use crate::systems::streams::kinds::{Claim, Location, Operator, StreamsJob, Unit};

/// A pod as a member of its job.
pub(crate) struct Member<'v> {
    pub(crate) name: &'v str,
    pub(crate) job: &'v StreamsJob,
    /// `job.spec`, which is valid.
    pub(crate) spec: &'v StreamsJobSpec,
    /// The index of the pod's processing element in the spec.
    pub(crate) index: usize,
    pub(crate) element: &'v ProcessingElement,
    /// True if an earlier round placed the pod as this element.
    pub(crate) is_placed: bool,
    /// The processing elements that share a host, among them the pod's.
    pub(crate) unit: &'v Unit,
}

impl Member<'_> {
    /// Returns the enforcement of colocation, exlocation and isolation.
    pub(crate) fn enforcement(&self) -> Enforcement {
        match self.spec.enforcement {
            Wanted::Required => Enforcement::Required,
            Wanted::Preferred => Enforcement::Preferred,
        }
    }

    /// The hosts and pools that the pod must be bound to.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.unit.claims_of(self.index, self.spec.enforcement)
    }

    /// The location as the job writes it: a host, `P2`, `P2[5]`.
    pub(crate) fn format_location(&self, location: &Location) -> String {
        match location {
            Location::Host(_) => {
                let claim = self.unit.claims.iter().find(|claim| claim.location == *location);
                let host = claim.and_then(|claim| self.operator(claim.by)?.host.as_ref());
                let text = host.and_then(|host| host.name.clone().or_else(|| host.address.clone()));
                text.unwrap_or_default()
            }
            Location::Pool { pool, index } => {
                let name = self.spec.pools.get(*pool).map_or("", |pool| pool.name.as_str());
                index.map_or_else(|| name.to_owned(), |index| format!("{name}[{index}]"))
            }
        }
    }

    pub(crate) fn operator(&self, by: Operator) -> Option<&api::Operator> {
        self.spec.processing_elements.get(by.element)?.operators.get(by.operator)
    }

    /// The element's own colocation tokens, each once.
    pub(crate) fn colocation(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::new();
        for text in self.element.operators.iter().flat_map(|operator| &operator.host_colocation) {
            // A job with an invalid token is not accepted, so this skips none.
            if let Ok(token) = Token::parse(TOKEN, text)
                && !tokens.contains(&token)
            {
                tokens.push(token);
            }
        }
        tokens
    }

    /// The exlocation tokens of the element's unit.
    pub(crate) fn exlocation(&self) -> Vec<Token> {
        let tokens = self.unit.exlocations.iter();
        tokens.filter_map(|exlocation| Token::parse(TOKEN, &exlocation.token).ok()).collect()
    }
}

impl Placing<'_> {
    /// Places the pod as a member of its StreamsJob.
    pub(super) fn place_member(&mut self, member: &Member<'_>) {
        let request = Request::parse(self.pod, Source::Job, &mut self.outcome);
        self.compare_annotations(member, &request);
        self.member =
            Some(format!("StreamsJob {}, processing element {}", member.name, member.element.name));
        let group = member.unit.group.as_deref();
        self.outcome.holds.push(format_entry(member.name, &member.element.name, group));

        let mut locations: Vec<Location> =
            member.claims().map(|claim| claim.location.clone()).collect();
        // Exclusive pools first: their toleration also holds for a host that is one of their members.
        locations.sort_by_key(|location| match location {
            Location::Pool { pool, .. } => !member.job.closure.pools[*pool].exclusive,
            Location::Host(_) => true,
        });
        let mut node = None;
        for location in &locations {
            let value = member.format_location(location);
            let found = self.resolve_location_in_job(member, location, &value);
            node = node.or(found);
        }
        self.colocate_member(member, node.as_deref());
        self.exlocate(&member.exlocation(), member.enforcement(), group);
        self.isolate_member(member);
        self.hold_to_reserved(member);
        let constrained = !self.outcome.intents.is_empty();
        if self.pod.is_controlled_by("DaemonSet") && constrained {
            let problem =
                "the pod belongs to a DaemonSet, which gives each node one pod".to_owned();
            let remedy = "use a Deployment, a StatefulSet or a Job";
            self.report(Reason::DaemonSetPod, keys::STREAMS_JOB, problem, remedy);
        }
    }

    /// Adds colocation in a job: a label for each token and one for the group. The pod affinity selects
    /// by the group only: with a term for each token, one pod would have to match all of the terms.
    /// `compat: upstream` does not change that.
    fn colocate_member(&mut self, member: &Member<'_>, node: Option<&str>) {
        let key = keys::HOST_COLOCATION;
        let tokens = member.colocation();
        for token in &tokens {
            self.label_by(key, token, keys::COLOCATION_LABEL_PREFIX);
        }
        let Some(group) = member.unit.group.as_deref() else { return };
        let enforcement = member.enforcement();
        if let Some((node, others)) =
            self.group_elsewhere((keys::GROUP, group), None, node, enforcement)
        {
            let problem =
                format!("its group {group} runs on node {others}, and it must go to node {node}");
            self.report(Reason::GroupElsewhere, key, problem, "move the group first");
        }
        let selector = Selector::by(label_requirement(keys::GROUP, intent::Operator::In, group));
        let term = PodTerm { enforcement, selector };
        let value = group.to_owned();
        self.change(keys::GROUP, group, Change::Label { key: keys::GROUP.to_owned(), value });
        self.change(keys::GROUP, group, Change::PodAffinity(term));
        let decision = by_enforcement(enforcement, "one node for all", "near the others");
        match tokens.is_empty() {
            true => self.record(keys::GROUP, group, decision),
            false => tokens.iter().for_each(|token| self.record(key, token.as_str(), decision)),
        }
        self.warn_about_node_name(key);
    }

    /// Holds the pod to the node that the job reserves for it, or off those of elements that must be apart.
    /// Without a recorded placement of the whole job the pod waits behind a gate, so that it takes no node
    /// that another element needs.
    fn hold_to_reserved(&mut self, member: &Member<'_>) {
        let key = keys::STREAMS_JOB;
        let cause = format!("{}{}: ", keys::RESERVED, member.name);
        if member.is_placed {
            // What an earlier round has decided stays, even if the job has reserved other nodes since.
            let record = self.pod.annotation(record::KEY).unwrap_or_default();
            let entries = record::entries(record, NAME);
            let own = entries.iter().filter(|entry| entry.starts_with(&cause));
            return self.outcome.holds.extend(own.cloned());
        }
        let is_bound = self.pod.node_name.is_some() || names_host(member.unit);
        if is_bound || !needs_placement(member.job) {
            return;
        }
        if member.job.status.witness.is_none() {
            return self.wait_for_placement(member, &cause);
        }
        let Some(unit) = member.job.closure.unit_index(member.index) else { return };
        let bound = required_node_terms(Some(&self.pod.affinity)).and_then(bound_to);
        let (term, decision) = match Restriction::of(member.job, unit) {
            Restriction::On(node) if bound.is_some_and(|bound| bound != node) => {
                let text = format!(
                    "its job reserves node {node} for it, and its own node affinity names another"
                );
                return self.warn(key, &text);
            }
            Restriction::On(node) => {
                (on_node(node), format!("node {node}, so that none is stranded"))
            }
            Restriction::Off(nodes) if nodes.is_empty() => return,
            Restriction::Off(nodes) => (off_nodes(&nodes), format!("not {}", some(&nodes))),
        };
        self.change(key, member.name, Change::NodeAffinity(vec![term]));
        self.outcome.holds.push(cause + &decision);
    }

    fn wait_for_placement(&mut self, member: &Member<'_>, cause: &str) {
        let key = keys::STREAMS_JOB;
        if !self.view.controller_present() {
            let text = "its node is not looked at together with those of the job's other elements: no controller leads";
            return self.warn(key, text);
        }
        self.change(key, member.name, Change::Gate(keys::GATE));
        let decision = "the nodes that the job leaves it, once it is placed as a whole";
        self.outcome.holds.push([cause, decision].concat());
    }

    /// Isolates the pod in its job. Under `compat: upstream` the pods of the other elements get a label, by
    /// which the isolated pod keeps off their nodes.
    fn isolate_member(&mut self, member: &Member<'_>) {
        let key = keys::HOST_ISOLATION;
        let enforcement = member.enforcement();
        if !self.is_compatible() {
            let mut operators = member.element.operators.iter();
            let Some(operator) = operators.find(|operator| operator.host_isolation) else { return };
            self.outcome.findings.extend(check_isolation(self.pod));
            return self.isolate(&operator.name, enforcement);
        }
        for by in &member.job.closure.isolated {
            let Some(operator) = member.operator(*by) else { continue };
            // A job with an invalid operator name is not accepted.
            let Ok(token) = Token::parse(TOKEN, &operator.name) else { continue };
            if by.element != member.index {
                self.label_by(key, &token, keys::ISOLATION_LABEL_PREFIX);
                continue;
            }
            let label = token.label_key(keys::ISOLATION_LABEL_PREFIX);
            let selector =
                Selector::by(label_requirement(label, intent::Operator::In, &token.label_value()));
            let term = PodTerm { enforcement, selector };
            self.change(key, token.as_str(), Change::PodAntiAffinity(term));
            let decision =
                by_enforcement(enforcement, "no other pod of job", "rather no other pod of job");
            self.record(key, token.as_str(), &format!("{decision} {}", member.name));
            self.warn_about_node_name(key);
        }
    }
}
