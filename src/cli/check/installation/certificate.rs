//! Diagnoses the certificates: the CA bundles of the webhook configurations against what each replica
//! serves.

use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use super::facts::{Facts, Unread};
use super::webhooks::subject;
use crate::tls::chain::{read_pem, verify};
use crate::tls::validity::Validity;
use stowplan_core::systems::check::installation::{Findings, Item};
use stowplan_core::systems::check::words::counted;

/// The remaining time is short if it is below this, and below a sixth of the lifetime.
const SHORT: Duration = Duration::from_secs(14 * DAY);

const DAY: u64 = 24 * 3600;

const REMEDY: &str = "see the runbook docs/operations.md#the-certificate-expires-or-is-not-trusted";

/// A chain of certificates that the API server meets.
struct Served {
    /// The replica that serves it, or the Secret that has it.
    subject: String,
    chain: Vec<CertificateDer<'static>>,
}

/// Diagnoses the certificates.
pub(super) fn check(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("certificate");
    let now = SystemTime::from(facts.now);
    let served = find_served(facts, &mut findings);
    for (configuration, webhook) in facts.webhooks() {
        let subject = subject(configuration, webhook);
        let client = &webhook.client_config;
        let bundle = client.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
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
        let Some(service) = &client.service else { continue };
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
    let leaves = served.iter().filter_map(|of| Validity::read(of.chain.first()?).ok());
    let first = leaves.min_by_key(|validity| validity.not_after);
    let webhooks = facts.webhooks().count();
    let Some(first) = first else { return findings.or_ok("there is no webhook to verify") };
    let left = first.not_after.duration_since(now).unwrap_or_default();
    let lifetime = first.not_after.duration_since(first.not_before).unwrap_or_default();
    let days = counted_days(left.as_secs() / DAY);
    if !left.is_zero() && left < SHORT.min(lifetime / 6) {
        findings.warning(format!("the certificate expires in {days}"), REMEDY);
    }
    if webhooks == 0 {
        // With webhooks the lines above say so of each.
        if left.is_zero() {
            findings.problem("the certificate has expired", REMEDY);
        }
        return findings.or_ok(format!("no webhook has to trust the certificate, {days} left"));
    }
    let subjects: Vec<&str> = served.iter().map(|of| of.subject.as_str()).collect();
    findings.or_ok(format!(
        "{} trust what {} serves, {days} left",
        counted(webhooks, "webhook"),
        subjects.join(", "),
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
    let mut unread: Option<&Unread> = facts.replicas.as_ref().err();
    for replica in facts.webhook_replicas() {
        let subject = format!("pod {}", replica.pod);
        let certificate = match &replica.status {
            Ok(status) => status.certificate.clone().unwrap_or_default(),
            Err(problem) => {
                unread = unread.or(Some(problem));
                continue;
            }
        };
        match (read_pem(certificate.chain.as_bytes()), certificate.problem) {
            (_, Some(problem)) => findings.problem(format!("{subject}: {problem}"), REMEDY),
            (Err(_), None) => findings.problem(format!("{subject} serves no certificate"), REMEDY),
            (Ok(chain), None) => served.push(Served { subject, chain }),
        }
    }
    if facts.replicas.is_ok() && facts.webhook_replicas().next().is_none() {
        let what = "no replica of the webhook exists, so none serves a certificate";
        findings.unknown(what, "the line service says what to do");
    }
    let Some(unread) = unread else { return served };
    match facts.secret.as_ref().map(|text| read_pem(text)) {
        Ok(Ok(chain)) if served.is_empty() => {
            served.push(Served { subject: "the Secret".to_owned(), chain });
        }
        Ok(Err(problem)) if served.is_empty() => {
            findings.problem(format!("the Secret's tls.crt is {problem}"), REMEDY);
        }
        _ => {
            let which = if served.is_empty() {
                "what the replicas serve"
            } else {
                "the certificate of some replicas"
            };
            findings.unknown(format!("{which} is not known: {unread}"), unread.remedy());
        }
    }
    served
}
