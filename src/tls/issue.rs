//! Makes CAs and certificates, and reads what is in Secrets and caBundles: PEM and DER on one side,
//! the plain values of [`authority`](super::authority) on the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::authority::{Ca, Id, Leaf, MOST_OTHERS, Span};
use super::validity::Validity;
use super::{Error, chain, parse_pair};

/// The longest text that is read as a certificate, a key or a bundle. A real one has a few KiB.
const LONGEST: usize = 64 * 1024;

/// The most certificates of one caBundle that are read: those of `authority`, and some others.
const MOST_IN_BUNDLE: usize = MOST_OTHERS + 2;

/// The common name of certificates. Clients look at the alternative names only.
const COMMON_NAME: &str = "stowplan-webhook";

/// A certificate and its key, PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Pair {
    pub certificate: String,
    pub key: String,
}

/// The names of the webhook's Service that its certificate is for, first the one that API servers call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ServiceNames([String; 4]);

impl ServiceNames {
    pub(crate) fn new(service: &str, namespace: &str) -> Self {
        let short = format!("{service}.{namespace}");
        let host = format!("{short}.svc");
        let long = format!("{host}.cluster.local");
        Self([host, long, short, service.to_owned()])
    }

    fn host(&self) -> &str {
        &self.0[0]
    }
}

/// Makes a CA that signs certificates of servers.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn make_ca(now: SystemTime, lifetime: Duration) -> Result<Pair, String> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| error.to_string())?;
    // The date is for people: a caBundle may hold two.
    let mut parameters = ca_parameters(&format!("stowplan-ca-{}", seconds(now)));
    set_dates(&mut parameters, Span::starting(now, lifetime));
    let certificate = parameters.self_signed(&key).map_err(|error| error.to_string())?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Makes the webhook's certificate, which does not outlive its CA.
///
/// # Errors
/// The system has no random numbers, or the CA cannot sign.
pub(crate) fn sign(
    ca: &KnownCa,
    names: &ServiceNames,
    now: SystemTime,
    lifetime: Duration,
) -> Result<Pair, String> {
    let text = |error: rcgen::Error| error.to_string();
    let parameters = ca_parameters(&ca.name);
    let issuer = Issuer::from_params(&parameters, &ca.key);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(text)?;
    let mut parameters = CertificateParams::new(names.0.clone()).map_err(text)?;
    parameters.distinguished_name = common_name(COMMON_NAME);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    let mut span = Span::starting(now, lifetime);
    span.not_after = span.not_after.min(ca.ca.span.not_after);
    set_dates(&mut parameters, span);
    let certificate = parameters.signed_by(&key, &issuer).map_err(text)?;
    // A CA of another origin may limit what it signs.
    let chain = [certificate.der().clone()];
    if !is_verified_by(&chain, &ca.certificate, names.host(), span.not_before) {
        return Err("certificates that the CA signs are not valid: delete its Secret".to_owned());
    }
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The parameters of a CA that its certificates repeat: its name and the way its key is identified.
fn ca_parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name(name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    parameters
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_dates(parameters: &mut CertificateParams, span: Span) {
    let date = |time| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds(time));
    parameters.not_before = date(span.not_before);
    parameters.not_after = date(span.not_after);
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn id_of(certificate: &[u8]) -> Id {
    Sha256::digest(certificate).into()
}

/// A CA of stowplan, with its key.
#[derive(Debug)]
pub(crate) struct KnownCa {
    pub ca: Ca,
    pub pair: Pair,
    certificate: CertificateDer<'static>,
    name: String,
    key: KeyPair,
}

/// Reads a CA from a Secret.
///
/// # Errors
/// Returns the reason why it cannot be used.
pub(crate) fn read_ca(certificate: &[u8], key: &[u8]) -> Result<KnownCa, String> {
    let (chain, validity, pair) = read_pair(certificate, key)?;
    let certificate = chain.into_iter().next().ok_or("no certificate")?;
    let name = read_ca_name(&certificate)?;
    let key = KeyPair::from_pem(&pair.key).map_err(|error| format!("the key: {error}"))?;
    if !key.is_compatible(&PKCS_ECDSA_P256_SHA256) {
        return Err("the key is not one of ECDSA P-256".to_owned());
    }
    let id = id_of(&certificate);
    let ca = Ca { id, span: span_of(&validity), published_since: None };
    Ok(KnownCa { ca, pair, certificate, name, key })
}

/// The common name of a CA, which is the issuer in its certificates.
fn read_ca_name(certificate: &[u8]) -> Result<String, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    if !parsed.is_ca() {
        return Err("the certificate is not one of a CA".to_owned());
    }
    // As stowplan makes it: its certificates repeat this name as their issuer.
    let is_alone = parsed.subject().iter_attributes().count() == 1;
    let name = parsed.subject().iter_common_name().next().filter(|_| is_alone);
    let name = name.and_then(|name| name.as_str().ok());
    Ok(name.ok_or("the subject of the CA is not one common name")?.to_owned())
}

/// The certificate and the key of a Secret, if they belong together.
fn read_pair(
    certificate: &[u8],
    key: &[u8],
) -> Result<(Vec<CertificateDer<'static>>, Validity, Pair), String> {
    let text = |bytes: &[u8], what: &str| {
        if bytes.len() > LONGEST {
            return Err(format!("the {what} has {} bytes", bytes.len()));
        }
        String::from_utf8(bytes.to_vec()).map_err(|_| format!("the {what} is not PEM"))
    };
    let pair = Pair { certificate: text(certificate, "certificate")?, key: text(key, "key")? };
    let (parsed, validity) = parse_pair(certificate, key, "the certificate", "the key").map_err(
        |error| match error {
            Error::Mismatch { .. } => "the key does not belong to the certificate".to_owned(),
            error => error.to_string(),
        },
    )?;
    Ok((parsed.cert.clone(), validity, pair))
}

fn span_of(validity: &Validity) -> Span {
    Span { not_before: validity.not_before, not_after: validity.not_after }
}

/// Reads the certificates of a caBundle. What is not a certificate is left out: it is replaced.
pub(crate) fn read_bundle(text: &[u8]) -> Vec<CertificateDer<'static>> {
    if text.len() > LONGEST {
        return Vec::new();
    }
    let certificates = CertificateDer::pem_slice_iter(text).filter_map(Result::ok);
    certificates
        .filter(|certificate| Validity::read(certificate).is_ok())
        .take(MOST_IN_BUNDLE)
        .collect()
}

/// The certificates that can be in a caBundle.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    all: BTreeMap<Id, CertificateDer<'static>>,
    /// That of stowplan's own CA.
    own: Option<Id>,
}

impl Certificates {
    pub(crate) fn add_ca(&mut self, ca: &KnownCa) {
        self.all.insert(ca.ca.id, ca.certificate.clone());
        self.own = Some(ca.ca.id);
    }

    /// Adds the certificates of a caBundle, and returns what they are.
    pub(crate) fn add_bundle(&mut self, text: &[u8]) -> BTreeSet<Id> {
        let certificates = read_bundle(text).into_iter();
        certificates
            .map(|certificate| {
                let id = id_of(&certificate);
                self.all.insert(id, certificate);
                id
            })
            .collect()
    }

    /// Formats a caBundle: PEM, first that of stowplan's own CA, then those with the latest end.
    pub(crate) fn format_bundle(&self, ids: &BTreeSet<Id>) -> String {
        let known = ids.iter().filter_map(|id| Some((id, self.all.get(id)?)));
        let mut certificates: Vec<_> = known
            .map(|(id, certificate)| {
                let end = Validity::read(certificate).map(|it| it.not_after);
                ((self.own == Some(*id), end), certificate)
            })
            .collect();
        certificates.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        chain::write_pem(certificates.into_iter().map(|(_, certificate)| certificate))
    }

    /// Reads the webhook's certificate from a Secret.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used.
    pub(crate) fn read_leaf(
        &self,
        certificate: &[u8],
        key: &[u8],
        names: &ServiceNames,
    ) -> Result<Leaf, String> {
        let (chain, validity, _) = read_pair(certificate, key)?;
        if let Some(missing) = names.0.iter().find(|name| !validity.names.contains(name)) {
            return Err(format!("the certificate is not for {missing}"));
        }
        let is_issuer = |issuer: &CertificateDer<'static>| {
            is_verified_by(&chain, issuer, names.host(), validity.not_before)
        };
        let issuers = self.all.iter().filter(|(_, issuer)| is_issuer(issuer));
        let issuers = issuers
            .filter_map(|(id, issuer)| Some((*id, span_of(&Validity::read(issuer).ok()?))))
            .collect();
        Ok(Leaf { issuers, span: span_of(&validity) })
    }
}

/// Returns true if an API server that trusts `issuer` and no other CA would trust the certificate, apart
/// from the dates.
fn is_verified_by(
    chain: &[CertificateDer<'static>],
    issuer: &CertificateDer<'static>,
    host: &str,
    at: SystemTime,
) -> bool {
    let [leaf, others @ ..] = chain else { return false };
    chain::verify_signatures(&[issuer], leaf, others, host, at).is_ok()
}

#[cfg(test)]
mod tests;
