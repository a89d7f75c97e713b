//! The annotations of a Streams pod as a typed request: read once, checked completely.

use super::keys;
use super::named;
use super::token::Token;
use crate::placement::intent::Enforcement;
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning, quoted};
use crate::systems::Outcome;
use crate::view::host_pool::Host;

/// What a pod asks for.
#[derive(Debug, Default)]
pub struct Request {
    /// `host`: the value as written, and what it means.
    pub host: Option<(String, Host)>,
    /// `host-pool`: the value as written, and what it means.
    pub pool: Option<(String, PoolReference)>,
    /// `host-colocation`.
    pub colocation: Vec<Token>,
    /// `host-exlocation`.
    pub exlocation: Vec<Token>,
    /// `host-isolation`: the isolated operator.
    pub isolation: Option<String>,
    /// `host-enforcement`.
    pub enforcement: Enforcement,
    /// The label `streams.ibm.com/job`.
    pub job: Option<String>,
    /// The label `streams.ibm.com/pe`.
    pub processing_element: Option<String>,
}

/// `NAME` or `NAME[INDEX]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PoolReference {
    /// The HostPool's name; in a StreamsJob the pool's own.
    pub name: String,
    /// The member asked for, from 0.
    pub index: Option<u32>,
}

impl Request {
    /// Reads the annotations of `pod`; what is wrong with them goes to the findings of `outcome`,
    /// and what is wrong is not part of the request. `of_job`: the pod belongs to a StreamsJob, which
    /// may have several tokens and calls pools by their SPL names.
    pub fn read(pod: &Pod<'_>, of_job: bool, outcome: &mut Outcome) -> Self {
        let findings = &mut outcome.findings;
        let label = |key: &str| pod.label(key).filter(|value| !value.is_empty()).map(str::to_owned);
        let mut request = Self {
            job: label(keys::JOB),
            processing_element: label(keys::PROCESSING_ELEMENT),
            ..Self::default()
        };
        let mut keep = |result: Result<(), Finding>| {
            if let Err(finding) = result {
                findings.push(finding);
            }
        };
        if let Some(value) = pod.annotation(keys::HOST) {
            keep(host(value).map(|host| request.host = Some((value.to_owned(), host))));
        }
        if let Some(value) = pod.annotation(keys::HOST_POOL) {
            let read = pool_reference(value, of_job);
            keep(read.map(|pool| request.pool = Some((value.to_owned(), pool))));
        }
        if let Some(value) = pod.annotation(keys::HOST_COLOCATION) {
            keep(colocation(value, of_job).map(|tokens| request.colocation = tokens));
        }
        if let Some(value) = pod.annotation(keys::HOST_EXLOCATION) {
            keep(
                Token::read(keys::HOST_EXLOCATION, value).map(|tokens| request.exlocation = tokens),
            );
        }
        if let Some(value) = pod.annotation(keys::HOST_ISOLATION) {
            keep(operator(value).map(|name| request.isolation = Some(name)));
            keep(request.check_isolation());
        }
        if let Some(value) = pod.annotation(keys::HOST_ENFORCEMENT) {
            keep(enforcement(value).map(|enforcement| request.enforcement = enforcement));
        }
        // Said of the annotations, not of what could be read of them: both are there.
        if pod.annotation(keys::HOST).is_some() && pod.annotation(keys::HOST_POOL).is_some() {
            keep(Err(Finding::new(
                Reason::Contradiction,
                keys::HOST,
                format!("stands beside {}, and a pod has one of them", keys::HOST_POOL),
                "remove one of the two annotations",
            )));
        }
        if pod.is_controlled_by("DaemonSet") {
            let constraint = |key: &&&str| pod.annotation(key).is_some();
            let constraints = &keys::ANNOTATIONS[..5];
            if let Some(key) = constraints.iter().find(constraint) {
                keep(Err(Finding::new(
                    Reason::DaemonSetPod,
                    *key,
                    "the pod belongs to a DaemonSet, which gives each node one pod",
                    "remove the annotation, or use a Deployment, a StatefulSet or a Job",
                )));
            }
        }
        warn_of_labels(pod, outcome);
        request
    }

    pub(super) fn check_isolation(&self) -> Result<(), Finding> {
        let missing = match (&self.job, &self.processing_element) {
            (Some(_), Some(_)) => return Ok(()),
            (None, Some(_)) => keys::JOB.to_owned(),
            (Some(_), None) => keys::PROCESSING_ELEMENT.to_owned(),
            (None, None) => format!("{} and {}", keys::JOB, keys::PROCESSING_ELEMENT),
        };
        Err(Finding::new(
            Reason::MissingLabel,
            keys::HOST_ISOLATION,
            format!("the pod has no label {missing}"),
            "label the pod with its job and its processing element: the others are known by them",
        ))
    }
}

/// A constraint that was written as a label has no effect; its author should know.
fn warn_of_labels(pod: &Pod<'_>, outcome: &mut Outcome) {
    for key in keys::ANNOTATIONS {
        if pod.label(key).is_some() && pod.annotation(key).is_none() {
            outcome.warnings.push(Warning::new(
                key,
                "is a label here and has no effect; make it an annotation",
            ));
        }
    }
}

fn host(value: &str) -> Result<Host, Finding> {
    Host::parse(value).map_err(|problem| {
        Finding::new(
            Reason::InvalidHost,
            keys::HOST,
            format!("{} {problem}", quoted(value)),
            "give the name of one node, or one of its IP addresses",
        )
    })
}

fn pool_reference(value: &str, of_job: bool) -> Result<PoolReference, Finding> {
    let wrong = |problem: &str| {
        Finding::new(
            Reason::InvalidPoolReference,
            keys::HOST_POOL,
            format!("{} {problem}", quoted(value)),
            "write the name of a HostPool, or NAME[INDEX] with an index from 0",
        )
    };
    let (name, index) = match value.split_once('[') {
        None => (value, None),
        Some((name, rest)) => {
            let digits = rest.strip_suffix(']').ok_or_else(|| wrong("does not end in ]"))?;
            (
                name,
                Some(index(digits).ok_or_else(|| wrong("has no decimal index between [ and ]"))?),
            )
        }
    };
    let is_name = is_object_name(name) || (of_job && is_identifier(name));
    if !is_name {
        return Err(wrong("has no valid object name (lower case letters, digits, - and .)"));
    }
    Ok(PoolReference { name: name.to_owned(), index })
}

/// A decimal number without sign, space or leading zero.
fn index(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let canonical = digits == "0" || !digits.starts_with('0');
    if plain && canonical { digits.parse().ok() } else { None }
}

/// An identifier of SPL, as the pools of a job are called.
pub(super) fn is_identifier(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 253
        && text.bytes().all(inner)
        && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// A DNS subdomain (RFC 1123), as object names are.
pub(super) fn is_object_name(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            !label.is_empty()
                && label.bytes().all(inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

fn colocation(value: &str, of_job: bool) -> Result<Vec<Token>, Finding> {
    let tokens = Token::read(keys::HOST_COLOCATION, value)?;
    match tokens.as_slice() {
        [first, second, ..] if !of_job => Err(Finding::new(
            Reason::SeveralTokens,
            keys::HOST_COLOCATION,
            format!(
                "{} tokens, {} and {} among them: the scheduler would ask one pod to match them all",
                tokens.len(),
                named(first),
                named(second)
            ),
            "give all pods that belong together one common token, or describe the job in a StreamsJob",
        )),
        _ => Ok(tokens),
    }
}

fn operator(value: &str) -> Result<String, Finding> {
    let wrong = |problem: String| {
        Finding::new(
            Reason::InvalidOperator,
            keys::HOST_ISOLATION,
            problem,
            "give the name of the isolated operator, or remove the annotation",
        )
    };
    // Words of SPL that no operator can be called, and what people write to turn a thing on or off.
    if matches!(value, "true" | "false") {
        return Err(wrong(format!("{} is not an operator's name", quoted(value))));
    }
    let mut tokens = Token::read(keys::HOST_ISOLATION, value)
        .map_err(|finding| wrong(finding.problem.replace("the token", "the operator's name")))?;
    match (tokens.pop(), tokens.is_empty()) {
        (Some(token), true) if !value.starts_with('[') => Ok(token.as_str().to_owned()),
        _ => Err(wrong(format!("{} is a list", quoted(value)))),
    }
}

fn enforcement(value: &str) -> Result<Enforcement, Finding> {
    match value {
        "required" => Ok(Enforcement::Required),
        "preferred" => Ok(Enforcement::Preferred),
        _ => Err(Finding::new(
            Reason::InvalidEnforcement,
            keys::HOST_ENFORCEMENT,
            format!("{} is not known", quoted(value)),
            "write required or preferred",
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pool_references_are_read() {
        let read = |value: &str| pool_reference(value, false).map(|pool| (pool.name, pool.index));
        assert_eq!(read("p"), Ok(("p".to_owned(), None)));
        assert_eq!(read("my-pool.v2[0]"), Ok(("my-pool.v2".to_owned(), Some(0))));
        assert_eq!(read("p[4294967295]"), Ok(("p".to_owned(), Some(u32::MAX))));
    }

    #[test]
    fn what_is_no_pool_reference_is_refused() {
        let long = "a".repeat(254);
        let huge = format!("p[{}]", "1".repeat(262_144));
        for value in [
            "",
            "P",
            "p_1",
            "p[",
            "p[]",
            "p[-1]",
            "p[+1]",
            "p[01]",
            "p[ 1]",
            "p[1] ",
            "p[1]x",
            "p[1][2]",
            "[1]",
            "p[4294967296]",
            "p[1e3]",
            "p[é]",
            "p[٣]",
            "-p",
            "p-",
            "p..q",
            ".p",
            "p,q",
            &long,
            &huge,
            "p\n",
        ] {
            let finding = pool_reference(value, false).expect_err(value);
            assert_eq!(finding.reason, Reason::InvalidPoolReference, "{value}");
        }
    }

    #[test]
    fn an_operator_has_one_name() {
        assert_eq!(operator("Sink"), Ok("Sink".to_owned()));
        assert_eq!(operator("Main.Sink[0]"), Ok("Main.Sink[0]".to_owned()));
        for value in
            ["", " ", "true", "false", "[\"Sink\"]", "\"Sink\"", "Sink\n", &"x".repeat(262_144)]
        {
            assert_eq!(operator(value).expect_err(value).reason, Reason::InvalidOperator);
        }
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_refused(value in "\\PC*") {
            let _ = (host(&value), pool_reference(&value, true), operator(&value), enforcement(&value), colocation(&value, false));
        }
    }
}
