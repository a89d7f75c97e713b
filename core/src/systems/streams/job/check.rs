//! Checks whether all constraints of a StreamsJob can be satisfied together (Streams design: a host
//! constraint that cannot be resolved fails the submission).
//!
//! [`check`] is pure. It runs when the object is validated (`/validate`), in the controller for the
//! condition Accepted, and in admission until that condition is set. It reports only conflicts that
//! are certain: the hosts of a sized pool, for example, are not known before the controller chooses
//! them.
//!
//! If the job only prefers colocation, exlocation and isolation, a preference that the cluster
//! cannot satisfy is not an error, but preferences that contradict each other are.
//!
//! The order of the checks: names and operators in this file, then `pools` (each pool separately),
//! then `hosts` (elements that must share a host, and elements that must not); `joins` says why they must.

mod hosts;
mod joins;
mod pools;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use super::super::request::is_identifier;
use super::super::resolve::format_host;
use super::super::token::{TOKEN, Token};
use crate::names::is_label_name;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::policy;
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::streams::api::streams_job::{
    Enforcement, Host as JobHost, MAX_ELEMENTS, MAX_OPERATORS, MAX_POOLS, MAX_TOKENS,
    StreamsJobSpec,
};
use crate::systems::streams::kinds::{
    Claim, Closure, Host, Location, Operator, StreamsJob, format_indices, operators, to_usize,
};
use crate::view::Name;
pub(super) use joins::format_joins;

/// Every reason why the job `name` cannot be placed, in the order of the checks: the job's syntax,
/// the policy, the cluster.
pub(crate) fn check(name: &Name, job: &StreamsJob, view: &View, policy: &Policy) -> Vec<Finding> {
    let subject = format!("StreamsJob {}", name.name);
    let spec = match &job.spec {
        Ok(spec) => spec,
        Err(problem) => {
            let remedy = "mend the StreamsJob";
            return vec![Finding::new(Reason::MalformedJob, subject, problem.as_str(), remedy)];
        }
    };
    let mut check = Check {
        subject,
        spec,
        closure: &job.closure,
        view,
        nodes: HashMap::new(),
        findings: Vec::new(),
    };
    check.check_names();
    check.check_operators();
    check.check_pools(name, job, policy);
    check.check_units();
    if spec.enforcement == Enforcement::Required {
        check.check_exlocation();
        check.check_isolation();
    }
    check.findings.sort_by_key(|finding| finding.reason.stage());
    check.findings
}

/// The state of checking one job.
struct Check<'c> {
    subject: String,
    spec: &'c StreamsJobSpec,
    closure: &'c Closure,
    view: &'c View,
    /// The hosts that were looked up, and the node of each. `None` if it is not exactly one node,
    /// which is then already reported.
    nodes: HashMap<&'c Host, Option<&'c str>>,
    findings: Vec<Finding>,
}

/// Formats an operator: `operator "Source" of processing element "parallel-0"`.
fn format_operator(spec: &StreamsJobSpec, by: Operator) -> String {
    let element = &spec.processing_elements[by.element];
    let operator = element.operators.get(by.operator).map_or("", |of| of.name.as_str());
    format!("operator {} of processing element {}", quoted(operator), quoted(&element.name))
}

/// Formats a location: `the host with the name n1`, `a host of pool "P2"`, `host 5 of pool "P2"`.
fn format_location(location: &Location, format_pool: impl FnOnce(usize) -> String) -> String {
    match location {
        Location::Host(host) => format!("the host with the {}", format_host(host)),
        Location::Pool { pool, index: None } => format!("a host of {}", format_pool(*pool)),
        Location::Pool { pool, index: Some(index) } => {
            format!("host {index} of {}", format_pool(*pool))
        }
    }
}

/// Formats what operators ask for, each as a clause: `operator "Source" of processing element "a" asks for the
/// host with the name n1`.
pub(super) fn format_claims<'c>(
    spec: &StreamsJobSpec,
    claims: impl IntoIterator<Item = &'c Claim>,
    format_pool: impl Fn(usize) -> String,
) -> Vec<String> {
    let format = |Claim { by, location, .. }: &Claim| {
        let location = format_location(location, &format_pool);
        format!("{} asks for {location}", format_operator(spec, *by))
    };
    claims.into_iter().map(format).collect()
}

impl<'c> Check<'c> {
    fn report(&mut self, reason: Reason, problem: String, remedy: &str) {
        self.findings.push(Finding::new(reason, self.subject.as_str(), problem, remedy));
    }

    /// Reports a finding about an operator; `problem` is the end of a sentence that begins with it.
    fn report_operator(&mut self, by: Operator, reason: Reason, problem: &str, remedy: &str) {
        self.report(reason, format!("{} {problem}", self.format_operator(by)), remedy);
    }

    fn format_operator(&self, by: Operator) -> String {
        format_operator(self.spec, by)
    }

    fn format_pool(&self, pool: usize) -> String {
        format!("pool {}", quoted(&self.spec.pools[pool].name))
    }

    fn format_location(&self, location: &Location) -> String {
        format_location(location, |pool| self.format_pool(pool))
    }

    /// Checks names for missing, malformed and duplicate ones, and lists for their length. The API
    /// server's schema refuses most of these, but it does not validate jobs from files.
    fn check_names(&mut self) {
        let spec = self.spec;
        for (kind, length, most) in [
            ("pools", spec.pools.len(), MAX_POOLS),
            ("processing elements", spec.processing_elements.len(), MAX_ELEMENTS),
        ] {
            if length > most {
                let problem = format!("has {length} {kind}, and at most {most} are allowed");
                self.report(Reason::MalformedJob, problem, "split the job");
            }
        }
        let mut seen = HashSet::new();
        for pool in &spec.pools {
            let name = quoted(&pool.name);
            if !is_identifier(&pool.name) {
                let problem = format!("the pool name {name} is not an SPL identifier");
                let remedy = "use letters, digits and _, beginning with a letter";
                self.report(Reason::MalformedJob, problem, remedy);
            }
            if !seen.insert(&pool.name) {
                let problem = format!("two pools are named {name}");
                self.report(Reason::DuplicateName, problem, "rename one of them");
            }
        }
        let mut seen = HashSet::new();
        let mut operators = HashSet::new();
        for element in &spec.processing_elements {
            let name = || quoted(&element.name);
            if !is_label_name(&element.name) {
                let problem =
                    format!("the processing element name {} is not a label value", name());
                let remedy = "use at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit";
                self.report(Reason::MalformedJob, problem, remedy);
            }
            if !seen.insert(&element.name) {
                let problem = format!("two processing elements are named {}", name());
                self.report(Reason::DuplicateName, problem, "rename one of them");
            }
            if element.operators.len() > MAX_OPERATORS {
                let problem = format!(
                    "processing element {} has {} operators, and at most {MAX_OPERATORS} are allowed",
                    name(),
                    element.operators.len()
                );
                self.report(Reason::MalformedJob, problem, "fuse fewer operators into it");
            }
            for operator in &element.operators {
                if let Err(invalid) = Token::parse("the name", &operator.name) {
                    let problem = format!(
                        "an operator of processing element {}: {}",
                        name(),
                        invalid.problem
                    );
                    self.report(Reason::MalformedJob, problem, "name it as the application does");
                } else if !operators.insert(&operator.name) {
                    let problem = format!(
                        "two operators are named {}, the second in processing element {}",
                        quoted(&operator.name),
                        name()
                    );
                    self.report(Reason::DuplicateName, problem, "give each operator its full name");
                }
            }
        }
    }

    /// Checks the host and the tokens of each operator.
    fn check_operators(&mut self) {
        for (by, operator) in operators(self.spec) {
            if let Some(host) = &operator.host {
                self.check_host(by, host);
            }
            for (kind, tokens) in [
                ("hostColocation", &operator.host_colocation),
                ("hostExlocation", &operator.host_exlocation),
            ] {
                if tokens.len() > MAX_TOKENS {
                    let count = tokens.len();
                    let problem = format!(
                        "has {count} tokens in {kind}, and at most {MAX_TOKENS} are allowed"
                    );
                    self.report_operator(by, Reason::MalformedJob, &problem, "use fewer tokens");
                }
                for token in tokens {
                    if let Err(invalid) = Token::parse(TOKEN, token) {
                        let problem =
                            format!("{}, {kind}: {}", self.format_operator(by), invalid.problem);
                        self.report(Reason::InvalidToken, problem, &invalid.remedy);
                    }
                }
            }
        }
    }

    fn check_host(&mut self, by: Operator, host: &JobHost) {
        let kinds = [&host.name, &host.address, &host.pool].into_iter().flatten().count();
        if kinds != 1 || (host.index.is_some() && host.pool.is_none()) {
            let problem = format!("has a host with {kinds} of name, address and pool, or an index");
            let remedy = "give exactly one of name, address and pool; only a pool has an index";
            return self.report_operator(by, Reason::InvalidHost, &problem, remedy);
        }
        if let Some(name) = &host.pool {
            let Some(pool) = self.spec.pools.iter().position(|pool| pool.name == *name) else {
                let pools = self.spec.pools.iter().map(|pool| pool.name.as_str());
                let (name, near) = (quoted(name), policy::meant(name, pools));
                let problem = format!("asks for pool {name}, which the job does not have{near}");
                let remedy = "add the pool to spec.pools, or name one of its pools";
                return self.report_operator(by, Reason::UndefinedPool, &problem, remedy);
            };
            return self.check_index(by, pool, host.index);
        }
        let text = host.name.as_ref().or(host.address.as_ref()).map_or("", String::as_str);
        let parsed = match Host::parse(text) {
            Ok(Host::Name(_)) if host.address.is_some() => Err("is not an IP address"),
            parsed => parsed.map(|_| ()),
        };
        if let Err(problem) = parsed {
            let problem = format!("asks for host {}, which {problem}", quoted(text));
            let remedy = "give the name of one node, or one of its IP addresses";
            self.report_operator(by, Reason::InvalidHost, &problem, remedy);
        }
    }

    fn check_index(&mut self, by: Operator, pool: usize, index: Option<u32>) {
        let Some(index) = index else { return };
        let problem = match (self.closure.pools[pool].form.is_ok(), self.closure.pools[pool].size())
        {
            // The pool is invalid, which `check_pools` reports.
            (false, _) => return,
            (true, Some(size)) if index < size => return,
            (true, Some(size)) => format!("it has {}", format_indices(to_usize(size))),
            (true, None) => "it has no size, so no host of it has an index".to_owned(),
        };
        let problem = format!("asks for host {index} of {}: {problem}", self.format_pool(pool));
        let remedy = "use an index of the pool; it starts at 0";
        self.report_operator(by, Reason::IndexOutOfRange, &problem, remedy);
    }
}
