//! Diagnoses the certificates: the CA bundles of the webhook configurations against what each replica
//! serves.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use super::facts::{Facts, Role, Unread};
use super::webhooks::webhooks;
use crate::systems::check::installation::{Findings, Item};
use crate::systems::check::words::counted;
use crate::tls::chain::{read_pem, verify};
use crate::tls::validity::Validity;

/// The remaining time is short if it is below this, and below a sixth of the lifetime.
const SHORT: Duration = Duration::from_secs(14 * DAY);

const DAY: u64 = 24 * 3600;

const REMEDY: &str = "see the runbook docs/operations.md#the-certificate-expires-or-is-not-trusted";

/// A chain that the API server meets.
struct Served {
    /// Which replica serves it, or the Secret that has it.
    subject: String,
    chain: Vec<CertificateDer<'static>>,
}

/// Diagnoses the certificates.
pub(super) fn check(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("certificate");
    let now = SystemTime::from(facts.now);
    let served = find_served(facts, &mut findings);
    let webhooks = webhooks(facts);
    let unlisted = facts.mutating.as_ref().err().or_else(|| facts.validating.as_ref().err());
    if let Some(unread) = unlisted
        && webhooks.is_empty()
    {
        let what = format!("what the webhook configurations trust is not known: {unread}");
        findings.unknown(what, unread.remedy());
    }
    for webhook in &webhooks {
        let subject = format!("{}: {}", webhook.configuration, webhook.name);
        let bundle = webhook.client.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
        if bundle.is_empty() {
            findings.problem(
                format!(
                    "{subject} has no caBundle: the API server trusts no certificate of the webhook"
                ),
                format!("{REMEDY}; with cert-manager: whether its cainjector runs"),
            );
            continue;
        }
        let bundle = match read_pem(bundle) {
            Ok(bundle) => bundle,
            Err(problem) => {
                let what = format!("the caBundle of {subject} is invalid: {problem}");
                findings.problem(what, REMEDY);
                continue;
            }
        };
        let is_expired = |of: &CertificateDer<'_>| {
            Validity::read(of).is_ok_and(|validity| validity.problem(None, now).is_some())
        };
        if bundle.iter().all(is_expired) {
            let what = format!("every CA in the caBundle of {subject} is expired or not yet valid");
            findings.problem(what, REMEDY);
            continue;
        }
        let Some(service) = &webhook.client.service else { continue };
        let host = format!("{}.{}.svc", service.name, service.namespace);
        for Served { subject: replica, chain } in &served {
            if let Err(problem) = verify(&bundle, chain, &host, now) {
                findings.problem(
                    format!("{subject}: the API server does not trust the certificate of {replica}: {problem}"),
                    REMEDY,
                );
            }
        }
    }
    let leaves: BTreeSet<&[u8]> =
        served.iter().filter_map(|of| Some(&**of.chain.first()?)).collect();
    if leaves.len() > 1 {
        findings.warning(
            format!("replicas serve {} different certificates", leaves.len()),
            "nothing while a certificate is being renewed; later, look at the logs of the webhook",
        );
    }
    let validities = leaves.into_iter().filter_map(|leaf| Validity::read(leaf).ok());
    let first = validities.min_by_key(|validity| validity.not_after);
    let Some(first) = first else { return findings.or_ok("there is no webhook to verify") };
    let left = first.not_after.duration_since(now).unwrap_or_default();
    let lifetime = first.not_after.duration_since(first.not_before).unwrap_or_default();
    let days = left.as_secs() / DAY;
    if !left.is_zero() && left < SHORT.min(lifetime / 6) {
        findings.warning(format!("the certificate expires in {}", counted_days(days)), REMEDY);
    }
    let subjects: Vec<&str> = served.iter().map(|of| of.subject.as_str()).collect();
    findings.or_ok(format!(
        "{} trust what {} serves, {} left",
        counted(webhooks.len(), "webhook"),
        subjects.join(", "),
        counted_days(days)
    ))
}

/// Formats a number of days; from two years on, as years.
pub(super) fn counted_days(days: u64) -> String {
    match days.saturating_sub(1) / 365 {
        0 | 1 => counted(usize::try_from(days).unwrap_or(usize::MAX), "day"),
        years => format!("more than {} years", years.min(10)),
    }
}

/// The chains of the replicas or, if none could be asked, that of the Secret.
fn find_served(facts: &Facts, findings: &mut Findings) -> Vec<Served> {
    let mut served = Vec::new();
    let mut unread: Option<Unread> = facts.replicas.as_ref().err().cloned();
    for replica in facts.replicas_of(Role::Webhook) {
        let subject = format!("pod {}", replica.pod);
        match &replica.status {
            Err(problem) => unread = unread.or_else(|| Some(problem.clone())),
            Ok(status) => {
                let certificate = status.certificate.clone().unwrap_or_default();
                if let Some(problem) = &certificate.problem {
                    findings.problem(format!("{subject}: {problem}"), REMEDY);
                }
                match read_pem(certificate.chain.as_bytes()) {
                    Ok(chain) => served.push(Served { subject, chain }),
                    Err(_) if certificate.problem.is_some() => {}
                    Err(_) => findings.problem(format!("{subject} serves no certificate"), REMEDY),
                }
            }
        }
    }
    if facts.replicas.is_ok() && facts.replicas_of(Role::Webhook).next().is_none() {
        let what = "no replica of the webhook exists, so none serves a certificate";
        findings.unknown(what, "the line service says what to do");
    }
    let Some(unread) = unread else { return served };
    if !served.is_empty() {
        let what = format!("the certificate of some replicas is not known: {unread}");
        findings.unknown(what, unread.remedy());
        return served;
    }
    match &facts.secret {
        Ok(text) => match read_pem(text) {
            Ok(chain) => served.push(Served { subject: "the Secret".to_owned(), chain }),
            Err(problem) => findings.problem(format!("the Secret's tls.crt is {problem}"), REMEDY),
        },
        Err(_) => {
            let remedy = match &unread {
                Unread::Unanswered(_) | Unread::Denied(_) => unread.remedy(),
                _ => "run this command as an administrator, or create a test pod (--try-in)",
            };
            findings.unknown(format!("what the replicas serve is not known: {unread}"), remedy);
        }
    }
    served
}
