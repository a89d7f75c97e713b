//! Chains of certificates as PEM, and whether an API server that trusts a CA bundle accepts one.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use super::validity::Validity;

/// The length of a line of PEM.
const LINE: usize = 64;

/// Reads all certificates of a PEM text.
///
/// # Errors
/// The text is not PEM, or has no certificate.
pub(crate) fn read_pem(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("not PEM: {error}"))?;
    if chain.is_empty() { Err("it has no PEM certificate".to_owned()) } else { Ok(chain) }
}

/// Writes certificates as PEM.
pub(crate) fn write_pem<'c>(
    certificates: impl IntoIterator<Item = &'c CertificateDer<'static>>,
) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in BASE64.encode(certificate).as_bytes().chunks(LINE) {
            text.push_str(str::from_utf8(line).expect("base64 is ASCII"));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Checks whether a client that trusts `bundle` accepts `chain` from `host` at `now`.
///
/// # Errors
/// Returns the reason why it does not.
pub(crate) fn verify(
    bundle: &[CertificateDer<'_>],
    chain: &[CertificateDer<'_>],
    host: &str,
    now: SystemTime,
) -> Result<(), String> {
    let (leaf, intermediates) = chain.split_first().ok_or("there is no certificate")?;
    // The dates and the names first: their messages name the values.
    let validity = Validity::read(leaf).map_err(|error| format!("not a certificate: {error}"))?;
    if let Some(problem) = validity.problem(Some(host), now) {
        return Err(problem);
    }
    // A certificate that is trusted itself needs no issuer. The verifier below refuses such a one.
    if bundle.contains(leaf) {
        return Ok(());
    }
    // The verifier below does not look at the dates of CAs; API servers do.
    let is_valid = |of: &&CertificateDer<'_>| {
        Validity::read(of).is_ok_and(|validity| validity.problem(None, now).is_none())
    };
    let (valid, invalid): (Vec<_>, Vec<_>) = bundle.iter().partition(is_valid);
    let verify = |roots: &[_]| verify_signatures(roots, leaf, intermediates, host, now);
    let result = verify(&valid);
    if result.is_err() && verify(&invalid).is_ok() {
        return Err("the CA that signed it has expired".to_owned());
    }
    result
}

/// Verifies a chain whatever the dates of the CAs in `bundle`.
///
/// # Errors
/// Returns the reason why the chain is not accepted.
pub(super) fn verify_signatures(
    bundle: &[&CertificateDer<'_>],
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    host: &str,
    now: SystemTime,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(bundle.iter().map(|&of| of.clone()));
    if added == 0 {
        return Err("the CA bundle has no valid certificate of a CA".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())?;
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
    match verifier.verify_server_cert(leaf, intermediates, &name, &[], now) {
        Ok(_) => Ok(()),
        // Another CA may have the same name.
        Err(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => Err("it was signed by another CA".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    const HOST: &str = "stowplan-webhook.stowplan-system.svc";

    pub(crate) struct Ca {
        pub(crate) certificate: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    /// A CA from 2020 to the beginning of year `until`.
    pub(crate) fn ca(until: i32) -> Ca {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        Ca { certificate, issuer: Issuer::new(parameters, key) }
    }

    /// A certificate from 2020 to the beginning of 2030, also for an address.
    pub(crate) fn leaf(ca: &Ca, host: &str) -> CertificateDer<'static> {
        let names = [host.to_owned(), "10.0.0.1".to_owned()];
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let key = KeyPair::generate().unwrap();
        parameters.signed_by(&key, &ca.issuer).unwrap().der().clone()
    }

    fn year(year: i32) -> SystemTime {
        rcgen::date_time_ymd(year, 6, 1).into()
    }

    #[test]
    fn a_chain_is_accepted_as_by_an_api_server() {
        let (own, other, old) = (ca(2040), ca(2040), ca(2022));
        let bundle = [own.certificate.clone()];
        let chain = [leaf(&own, HOST)];
        let both = [other.certificate.clone(), own.certificate.clone()];
        assert_eq!(verify(&both, &chain, HOST, year(2026)), Ok(()));
        let refused = |bundle: &[_], chain: &[_], at| verify(bundle, chain, HOST, at).unwrap_err();
        let foreign = "it was signed by another CA";
        assert_eq!(refused(&[other.certificate], &chain, year(2026)), foreign);
        assert_eq!(refused(&bundle, &chain, year(2031)), "expired at 2030-01-01T00:00:00Z");
        assert_eq!(refused(&bundle, &chain, year(2019)), "not valid before 2020-01-01T00:00:00Z");
        let named = [leaf(&own, "other.svc")];
        let problem = format!("is for other.svc, and the API server calls {HOST}");
        assert_eq!(refused(&bundle, &named, year(2026)), problem);
        let of_old = [leaf(&old, HOST)];
        let expired = "the CA that signed it has expired";
        assert_eq!(refused(&[old.certificate], &of_old, year(2026)), expired);
        assert_eq!(refused(&bundle, &[], year(2026)), "there is no certificate");
        assert_eq!(verify(&chain, &chain, HOST, year(2026)), Ok(()));
    }

    #[test]
    fn pem_is_read_as_it_was_written() {
        let (first, second) = (ca(2040).certificate, ca(2040).certificate);
        let text = write_pem(&[first.clone(), second.clone()]);
        assert!(text.lines().all(|line| line.len() <= LINE), "{text}");
        assert_eq!(read_pem(text.as_bytes()), Ok(vec![first, second]));
        for text in ["", "rubbish", "-----BEGIN CERTIFICATE-----\n", &"x".repeat(256 * 1024)] {
            assert!(read_pem(text.as_bytes()).is_err());
        }
    }
}
