//! Parses the annotations of a Streams pod into a typed request, and reports every invalid one.

use super::keys;
use super::token::{TOKEN, Token};
use crate::names::is_dns_subdomain;
use crate::placement::intent::Enforcement;
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::systems::Outcome;
use crate::systems::streams::kinds::Host;

/// The constraints that a pod's annotations ask for.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// `host`: the value as written, and as parsed.
    pub host: Option<(String, Host)>,
    /// `host-pool`: the value as written, and as parsed.
    pub pool: Option<(String, PoolReference)>,
    pub colocation: Vec<Token>,
    pub exlocation: Vec<Token>,
    /// `host-isolation`: the isolated operator.
    pub isolation: Option<String>,
    pub enforcement: Enforcement,
}

/// The source of a pod's constraints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// Its annotations.
    Annotations,
    /// Its StreamsJob, which the annotations repeat: several tokens and the SPL names of pools are allowed.
    Job,
}

/// `NAME` or `NAME[INDEX]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PoolReference {
    /// The name of the HostPool, or of a pool of the pod's StreamsJob.
    pub name: String,
    /// The index of a member, from 0.
    pub index: Option<u32>,
}

impl Request {
    /// Parses the annotations of `pod`. An invalid one is reported in `outcome` and left out of the
    /// request.
    pub(crate) fn parse(pod: &Pod<'_>, source: Source, outcome: &mut Outcome) -> Self {
        let findings = &mut outcome.findings;
        let host = read(pod, keys::HOST, findings, parse_host);
        let pool = read(pod, keys::HOST_POOL, findings, |value| parse_pool(value, source));
        let colocation =
            read(pod, keys::HOST_COLOCATION, findings, |value| parse_colocation(value, source));
        let exlocation = read(pod, keys::HOST_EXLOCATION, findings, |value| {
            parse_tokens(keys::HOST_EXLOCATION, value)
        });
        let isolation = read(pod, keys::HOST_ISOLATION, findings, parse_operator);
        if pod.annotation(keys::HOST_ISOLATION).is_some() {
            findings.extend(check_isolation(pod));
        }
        let enforcement = read(pod, keys::HOST_ENFORCEMENT, findings, parse_enforcement);
        // Reported even if one of the two annotations is invalid.
        if pod.annotation(keys::HOST).is_some() && pod.annotation(keys::HOST_POOL).is_some() {
            let other = keys::HOST_POOL;
            let problem =
                format!("is set together with {other}, and a pod may have only one of them");
            let remedy = "remove one of the two annotations";
            findings.push(Finding::new(Reason::Contradiction, keys::HOST, problem, remedy));
        }
        if pod.is_controlled_by("DaemonSet") {
            let constraint = |key: &&&str| pod.annotation(key).is_some();
            let constraints = &keys::ANNOTATIONS[..5];
            if let Some(key) = constraints.iter().find(constraint) {
                let problem = "the pod belongs to a DaemonSet, which gives each node one pod";
                let remedy = "remove the annotation, or use a Deployment, a StatefulSet or a Job";
                findings.push(Finding::new(Reason::DaemonSetPod, *key, problem, remedy));
            }
        }
        let as_written = |key| pod.annotation(key).unwrap_or_default().to_owned();
        Self {
            host: host.map(|host| (as_written(keys::HOST), host)),
            pool: pool.map(|pool| (as_written(keys::HOST_POOL), pool)),
            colocation: colocation.unwrap_or_default(),
            exlocation: exlocation.unwrap_or_default(),
            isolation,
            enforcement: enforcement.unwrap_or_default(),
        }
    }
}

/// Parses the annotation with this key if the pod has it, and adds the finding about an invalid one.
fn read<T>(
    pod: &Pod<'_>,
    key: &str,
    findings: &mut Vec<Finding>,
    parse: impl FnOnce(&str) -> Result<T, Finding>,
) -> Option<T> {
    let parsed = parse(pod.annotation(key)?);
    parsed.map_err(|finding| findings.push(finding)).ok()
}

/// Returns the job that a pod's label names.
pub(super) fn job_of<'p>(pod: &'p Pod<'_>) -> Option<&'p str> {
    pod.label(keys::JOB).filter(|job| !job.is_empty())
}

/// Returns the processing element that a pod's label names.
pub(super) fn element_of<'p>(pod: &'p Pod<'_>) -> Option<&'p str> {
    pod.label(keys::PROCESSING_ELEMENT).filter(|element| !element.is_empty())
}

/// Returns which labels for the job and the processing element a pod lacks, as the end of a sentence.
pub(super) fn missing_labels(pod: &Pod<'_>) -> Option<String> {
    Some(match (job_of(pod), element_of(pod)) {
        (Some(_), Some(_)) => return None,
        (None, Some(_)) => format!("no label {}", keys::JOB),
        (Some(_), None) => format!("no label {}", keys::PROCESSING_ELEMENT),
        (None, None) => format!("neither the label {} nor {}", keys::JOB, keys::PROCESSING_ELEMENT),
    })
}

/// Returns a finding if a pod lacks a label for its job or its processing element, which isolation needs.
pub(super) fn check_isolation(pod: &Pod<'_>) -> Option<Finding> {
    let problem = format!("the pod has {}", missing_labels(pod)?);
    let remedy = "label the pod with its job and its processing element: isolation finds the other pods by them";
    Some(Finding::new(Reason::MissingLabel, keys::HOST_ISOLATION, problem, remedy))
}

fn parse_host(value: &str) -> Result<Host, Finding> {
    Host::parse(value).map_err(|problem| {
        let problem = format!("{} {problem}", quoted(value));
        let remedy = "give the name of one node, or one of its IP addresses";
        Finding::new(Reason::InvalidHost, keys::HOST, problem, remedy)
    })
}

fn parse_pool(value: &str, source: Source) -> Result<PoolReference, Finding> {
    let wrong = |problem: &str| {
        let problem = format!("{} {problem}", quoted(value));
        let remedy = "write the name of a HostPool, which an index from 0 in brackets may follow, as ingest[0]";
        Finding::new(Reason::InvalidPoolReference, keys::HOST_POOL, problem, remedy)
    };
    let (name, index) = match value.split_once('[') {
        None => (value, None),
        Some((name, rest)) => {
            let digits = rest.strip_suffix(']').ok_or_else(|| wrong("does not end in ]"))?;
            let index = parse_index(digits);
            (name, Some(index.ok_or_else(|| wrong("has no decimal index between [ and ]"))?))
        }
    };
    let is_name = is_dns_subdomain(name) || (source == Source::Job && is_identifier(name));
    if !is_name {
        return Err(wrong("has no valid object name (lower case letters, digits, - and .)"));
    }
    Ok(PoolReference { name: name.to_owned(), index })
}

/// Parses a decimal number without sign, space or leading zero.
fn parse_index(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let canonical = digits == "0" || !digits.starts_with('0');
    if plain && canonical { digits.parse().ok() } else { None }
}

/// Returns true if `text` is an SPL identifier, as the names of a job's pools are.
pub(super) fn is_identifier(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 253
        && text.bytes().all(inner)
        && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

fn parse_tokens(key: &'static str, value: &str) -> Result<Vec<Token>, Finding> {
    Token::parse_list(TOKEN, value).map_err(|invalid| invalid.in_annotation(key))
}

fn parse_colocation(value: &str, source: Source) -> Result<Vec<Token>, Finding> {
    let tokens = parse_tokens(keys::HOST_COLOCATION, value)?;
    match tokens.as_slice() {
        [first, second, ..] if source == Source::Annotations => {
            let problem = format!(
                "{} tokens, {} and {} among them: the scheduler would ask one pod to match them all",
                tokens.len(),
                quoted(first.as_str()),
                quoted(second.as_str())
            );
            let remedy = "give all pods that belong together one common token, or describe the job in a StreamsJob";
            Err(Finding::new(Reason::SeveralTokens, keys::HOST_COLOCATION, problem, remedy))
        }
        _ => Ok(tokens),
    }
}

fn parse_operator(value: &str) -> Result<String, Finding> {
    let wrong = |problem: String| {
        let remedy = "give the name of the isolated operator, or remove the annotation";
        Finding::new(Reason::InvalidOperator, keys::HOST_ISOLATION, problem, remedy)
    };
    // Authors who mistake the annotation for a switch write these. SPL reserves both words.
    if matches!(value, "true" | "false") {
        return Err(wrong(format!("{} is not an operator's name", quoted(value))));
    }
    let mut tokens = Token::parse_list("the operator's name", value)
        .map_err(|invalid| wrong(invalid.problem))?;
    match (tokens.pop(), tokens.is_empty()) {
        (Some(token), true) if !value.starts_with('[') => Ok(token.as_str().to_owned()),
        _ => Err(wrong(format!("{} is a list", quoted(value)))),
    }
}

fn parse_enforcement(value: &str) -> Result<Enforcement, Finding> {
    match value {
        "required" => Ok(Enforcement::Required),
        "preferred" => Ok(Enforcement::Preferred),
        _ => {
            let problem = format!("{} is not known", quoted(value));
            let remedy = "write required or preferred";
            Err(Finding::new(Reason::InvalidEnforcement, keys::HOST_ENFORCEMENT, problem, remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_pool_reference_is_refused() {
        let long = "a".repeat(254);
        let huge = format!("p[{}]", "1".repeat(262_144));
        let short = [
            "", "P", "p_1", "p[", "p[]", "p[-1]", "p[+1]", "p[01]", "p[ 1]", "p[1] ", "p[1]x",
            "[1]", "p[1e3]", "p[é]", "p[٣]", "-p", "p-", "p..q", ".p", "p,q", "p\n",
        ];
        for value in short.into_iter().chain(["p[1][2]", "p[4294967296]", &long, &huge]) {
            let finding = parse_pool(value, Source::Annotations).expect_err(value);
            assert_eq!(finding.reason, Reason::InvalidPoolReference, "{value}");
        }
    }

    #[test]
    fn an_operator_has_one_name() {
        assert_eq!(parse_operator("Sink"), Ok("Sink".to_owned()));
        assert_eq!(parse_operator("Main.Sink[0]"), Ok("Main.Sink[0]".to_owned()));
        for value in
            ["", " ", "true", "false", "[\"Sink\"]", "\"Sink\"", "Sink\n", &"x".repeat(262_144)]
        {
            assert_eq!(parse_operator(value).expect_err(value).reason, Reason::InvalidOperator);
        }
    }
}
