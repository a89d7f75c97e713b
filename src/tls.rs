//! The serving certificate: read from two files, and read again when they change.
//!
//! Files are compared by content, not by modification time: a kubelet swaps a symbolic link, and
//! copies keep their times. The old pair stays in use while the certificate and the key in the
//! files do not match (two files are written one after the other), and while the API server trusts
//! the old certificate and would not trust the new one. Trust is checked on every refresh, not only
//! when the files change: certificates expire and become valid with time.

mod client_ca;
pub(crate) mod validity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use client_ca::ClientCa;
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use validity::Validity;

/// Why a pair of files cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The key does not match the certificate.
    #[error("{} is not the key of {}", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// The two files, and the pair of certificate and key that is in use.
#[derive(Debug)]
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The DNS name that the API server calls; `None`: any.
    host: Option<String>,
    current: Arc<Current>,
    /// The dates and names of the certificate in use.
    serving: Option<Validity>,
    /// The last valid pair in the files, if it is not in use.
    candidate: Option<(Arc<CertifiedKey>, Validity)>,
    /// The content of the files when they were last read, valid or not.
    last_content: Option<(Vec<u8>, Vec<u8>)>,
    /// Why the files could not be used when they were last read.
    problem: Option<String>,
    /// `None`: clients need no certificate.
    client_ca: Option<ClientCa>,
    http2: bool,
    server: ServerTls,
}

/// The configuration of the TLS server. A new client CA replaces it, so that no session under the
/// old CA is resumed.
#[derive(Clone, Debug, Default)]
pub struct ServerTls(Arc<ArcSwapOption<ServerConfig>>);

impl ServerTls {
    /// The configuration for the next connection. `None`: clients must present a certificate, and
    /// no valid client CA was read yet.
    #[must_use]
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        self.0.load_full()
    }
}

/// The result of [`Files::refresh`].
#[derive(Debug)]
pub enum Change {
    /// The files did not change, or their problem was reported before.
    None,
    /// A new pair is in use from now on.
    Loaded,
    /// The new content of the files cannot be used; the old pair stays in use.
    Rejected(Error),
}

/// The state of the certificate that is in use.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    /// Why the API server would not trust it; `None` if it would.
    pub problem: Option<String>,
    /// When it expires.
    pub not_after: Option<SystemTime>,
}

impl CertificateStatus {
    /// The state before the files were read for the first time.
    #[must_use]
    pub fn unread() -> Self {
        Self { problem: Some("no certificate was read yet".to_owned()), not_after: None }
    }

    /// Full days until the certificate expires; 0 if it has expired.
    #[must_use]
    pub fn days_left(&self, now: SystemTime) -> Option<u64> {
        let remaining = self.not_after?.duration_since(now).unwrap_or_default();
        Some(remaining.as_secs() / (24 * 60 * 60))
    }
}

#[derive(Debug, Default)]
struct Current(ArcSwapOption<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl Files {
    /// A pair of files, and the DNS name that the certificate must be valid for. Reads nothing yet.
    #[must_use]
    pub fn new(certificate: PathBuf, key: PathBuf, host: Option<String>) -> Self {
        Self {
            certificate,
            key,
            host,
            current: Arc::default(),
            serving: None,
            candidate: None,
            last_content: None,
            problem: None,
            client_ca: None,
            http2: false,
            server: ServerTls::default(),
        }
        .configured()
    }

    /// Clients must present a certificate of the CA in this file.
    #[must_use]
    pub fn for_clients_of(mut self, client_ca: PathBuf) -> Self {
        self.client_ca = Some(ClientCa::new(client_ca));
        self.server.0.store(None);
        self
    }

    /// Offers HTTP/2 too.
    #[must_use]
    pub fn with_http2(mut self, http2: bool) -> Self {
        self.http2 = http2;
        self.configured()
    }

    /// Reads the file of the client CA, if there is one. A new CA counts for new connections.
    /// Blocks on file I/O, as [`refresh`](Self::refresh).
    pub fn refresh_client_ca(&mut self) -> Change {
        let Some(client_ca) = &mut self.client_ca else { return Change::None };
        match client_ca.refresh() {
            Ok(false) => Change::None,
            Ok(true) => {
                self.configure();
                Change::Loaded
            }
            Err(error) => Change::Rejected(error),
        }
    }

    /// Reads the files, and puts a new pair into use unless the old one is trusted and the new one
    /// is not. Blocks on file I/O, so it must not run on a thread that serves requests.
    pub fn refresh(&mut self, now: SystemTime) -> Change {
        let read = self.read_files();
        let Some((pair, validity)) = self.candidate.take() else {
            return read.err().map_or(Change::None, Change::Rejected);
        };
        let trusted = |validity: &Validity| validity.problem(self.host.as_deref(), now).is_none();
        // An untrusted pair is better than none, and the newest untrusted pair is better than an
        // older one: the files are what the administrator wants.
        let takes_over = trusted(&validity) || !self.serving.as_ref().is_some_and(trusted);
        let problem = validity.problem(self.host.as_deref(), now).unwrap_or_default();
        if takes_over {
            self.current.0.store(Some(pair));
            self.serving = Some(validity);
            return Change::Loaded;
        }
        self.candidate = Some((pair, validity));
        match read {
            Ok(true) => {
                Change::Rejected(Error::Content { path: self.certificate.clone(), problem })
            }
            Ok(false) => Change::None,
            Err(error) => Change::Rejected(error),
        }
    }

    /// The state of the certificate at `now`.
    #[must_use]
    pub fn status(&self, now: SystemTime) -> CertificateStatus {
        let mut status = self.serving_status(now);
        let client_ca = self.client_ca.as_ref().and_then(ClientCa::problem);
        status.problem = status.problem.or(client_ca);
        status
    }

    fn serving_status(&self, now: SystemTime) -> CertificateStatus {
        let Some(serving) = &self.serving else {
            let problem =
                self.problem.clone().unwrap_or_else(|| "no certificate was read yet".to_owned());
            return CertificateStatus { problem: Some(problem), not_after: None };
        };
        let problem = serving
            .problem(self.host.as_deref(), now)
            .map(|problem| format!("{}: {problem}", self.certificate.display()));
        CertificateStatus { problem, not_after: Some(serving.not_after) }
    }

    /// Reads the files. If they changed to a valid pair, it becomes the candidate, and the result
    /// is `true`. A problem is an error when it is new, and `false` when it was reported before.
    fn read_files(&mut self) -> Result<bool, Error> {
        let contents =
            read(&self.certificate).and_then(|certificate| Ok((certificate, read(&self.key)?)));
        let parsed = contents.and_then(|contents| {
            if self.last_content.as_ref() == Some(&contents) {
                return Ok(None);
            }
            self.candidate = None;
            let (certificate, key) = self.last_content.insert(contents);
            parse_pair(certificate, key, &self.certificate, &self.key).map(Some)
        });
        match parsed {
            Ok(pair) => {
                let changed = pair.is_some();
                if changed {
                    (self.candidate, self.problem) = (pair, None);
                }
                Ok(changed)
            }
            Err(error) => {
                // Reported once, not on every refresh.
                let was_reported =
                    self.problem.replace(error.to_string()) == Some(error.to_string());
                if was_reported { Ok(false) } else { Err(error) }
            }
        }
    }

    /// The configuration of the TLS server, which always serves the pair in use: TLS 1.2 and 1.3.
    #[must_use]
    pub fn server(&self) -> ServerTls {
        self.server.clone()
    }

    fn configured(self) -> Self {
        self.configure();
        self
    }

    fn configure(&self) {
        let verifier = match &self.client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(client_ca) => match client_ca.verifier() {
                Some(verifier) => verifier,
                None => return self.server.0.store(None),
            },
        };
        let resolver: Arc<Current> = Arc::clone(&self.current);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring serves the default protocol versions")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        if self.http2 {
            config.alpn_protocols.push(b"h2".to_vec());
        }
        config.alpn_protocols.push(b"http/1.1".to_vec());
        self.server.0.store(Some(Arc::new(config)));
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

fn parse_pair(
    certificate: &[u8],
    key: &[u8],
    certificate_path: &Path,
    key_path: &Path,
) -> Result<(Arc<CertifiedKey>, Validity), Error> {
    let invalid = |path: &Path, problem: String| Error::Content { path: path.to_owned(), problem };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(certificate_path, format!("not a PEM certificate: {error}")))?;
    let Some(leaf) = chain.first() else {
        return Err(invalid(certificate_path, "holds no PEM certificate".to_owned()));
    };
    let validity = Validity::read(leaf)
        .map_err(|error| invalid(certificate_path, format!("not a certificate: {error}")))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| invalid(key_path, format!("not a PEM private key: {error}")))?;
    let key = any_supported_type(&key)
        .map_err(|error| invalid(key_path, format!("not a key that can sign: {error}")))?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        // `Unknown`: the public key of this type of key is not available, so it may match.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok((Arc::new(pair), validity))
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(Error::Mismatch {
            certificate: certificate_path.to_owned(),
            key: key_path.to_owned(),
        }),
        Err(error) => Err(invalid(certificate_path, format!("not a certificate: {error}"))),
    }
}

#[cfg(test)]
mod tests;
