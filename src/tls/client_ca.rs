//! The CA whose certificates clients must present (mutual TLS).
//!
//! As long as no valid CA was read, no client is accepted: a mistake in the file must not open the
//! port to everybody. A file that becomes invalid later changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{Error, report_once};

/// The file, and what it contained when it was last valid.
#[derive(Debug)]
pub(super) struct ClientCa {
    path: PathBuf,
    last_content: Option<Vec<u8>>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The reason why the file could not be used when it was last read.
    problem: Option<String>,
}

impl ClientCa {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, last_content: None, verifier: None, problem: None }
    }

    /// Reads the file. `true`: there is a new verifier. A problem is an error when it is new.
    pub(super) fn refresh(&mut self) -> Result<bool, Error> {
        match self.read() {
            Ok(None) => Ok(false),
            Ok(Some(verifier)) => {
                (self.verifier, self.problem) = (Some(verifier), None);
                Ok(true)
            }
            Err(error) => report_once(&mut self.problem, error),
        }
    }

    fn read(&mut self) -> Result<Option<Arc<dyn ClientCertVerifier>>, Error> {
        let content = super::read(&self.path)?;
        if self.last_content.as_ref() == Some(&content) {
            return Ok(None);
        }
        let verifier = build_verifier(self.last_content.insert(content));
        let origin = || self.path.display().to_string();
        verifier.map(Some).map_err(|problem| Error::Content { origin: origin(), problem })
    }

    /// The verifier of clients' certificates. `None`: no valid CA was read yet.
    pub(super) fn verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.verifier.clone()
    }

    /// Returns the reason why no client can be accepted.
    pub(super) fn problem(&self) -> Option<String> {
        let read =
            || self.problem.clone().unwrap_or_else(|| "no client CA was read yet".to_owned());
        self.verifier.is_none().then(read)
    }
}

/// Builds the verifier of certificates of the CAs in a PEM text.
///
/// # Errors
/// Returns the reason why the text is invalid.
fn build_verifier(text: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        let certificate = certificate.map_err(|error| format!("not a PEM certificate: {error}"))?;
        roots.add(certificate).map_err(|error| format!("not a certificate of a CA: {error}"))?;
    }
    if roots.is_empty() {
        return Err("contains no PEM certificate".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| error.to_string())
}
