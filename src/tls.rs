//! The serving certificate: read from a Secret or from two files, and read again when they change.
//! [`authority`] and [`issue`] make it (tls.mode self).
//!
//! Files are compared by content, not by modification time: a kubelet swaps a symbolic link, and
//! copies keep their times. The old pair stays in use while the certificate and the key
//! do not match (two files are written one after the other), and while the API server trusts
//! the old certificate and would not trust the new one. Trust is checked on every refresh, not only
//! when the content changes: certificates expire and become valid with time.

pub(crate) mod authority;
pub(crate) mod chain;
mod client_ca;
pub(crate) mod issue;
mod secret;
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

use secret::Contents;
pub(crate) use secret::{CERTIFICATE, KEY, SecretContent};
use validity::Validity;

/// The reason why a certificate cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read, or the content of a file or of a Secret is invalid.
    #[error("{origin}: {problem}")]
    Content {
        /// The file, or the Secret and its key.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// The key does not match the certificate.
    #[error("{key} is not the key of {certificate}")]
    Mismatch {
        /// Where the certificate is.
        certificate: String,
        /// Where the key is.
        key: String,
    },
}

/// Where the certificate and its key come from.
#[derive(Debug)]
enum Source {
    Files { certificate: PathBuf, key: PathBuf },
    Secret(Arc<SecretContent>),
}

impl Source {
    /// The bytes of the certificate and of the key; `None`: they were not read yet.
    fn read(&self) -> Result<Option<Contents>, Error> {
        match self {
            Self::Files { certificate, key } => Ok(Some((read(certificate)?, read(key)?))),
            Self::Secret(secret) => secret.read(),
        }
    }

    /// Returns the names of the certificate and of the key in messages.
    fn origins(&self) -> (String, String) {
        match self {
            Self::Files { certificate, key } => {
                (certificate.display().to_string(), key.display().to_string())
            }
            Self::Secret(secret) => (secret.origin(CERTIFICATE), secret.origin(KEY)),
        }
    }
}

/// The pair of certificate and key that is in use, and where it comes from.
#[derive(Debug)]
pub struct Certificate {
    source: Source,
    /// The DNS name that the API server calls; `None`: any.
    host: Option<String>,
    current: Arc<Current>,
    /// The dates and names of the certificate in use.
    serving: Option<Validity>,
    /// The chain in use as PEM; empty: there is none yet.
    chain: Arc<str>,
    /// The last valid pair that was read, if it is not in use.
    candidate: Option<(Arc<CertifiedKey>, Validity)>,
    /// The content that was last read, valid or not.
    last_content: Option<Contents>,
    /// The reason why what was last read cannot be used.
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

/// The result of [`Certificate::refresh`].
#[derive(Debug)]
pub enum Change {
    /// Nothing has changed, or the problem was reported before.
    None,
    /// A new pair is in use from now on.
    Loaded,
    /// The new content cannot be used; the old pair stays in use.
    Rejected(Error),
}

/// The state of the certificate that is in use.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    /// The reason why the API server would not trust it; `None` if it would.
    pub problem: Option<String>,
    /// When it expires.
    pub not_after: Option<SystemTime>,
    /// The chain as PEM; empty: there is none yet.
    pub chain: Arc<str>,
}

impl CertificateStatus {
    /// The state before anything was read.
    #[must_use]
    pub fn unread() -> Self {
        let problem = Some("no certificate was read yet".to_owned());
        Self { problem, not_after: None, chain: Arc::default() }
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

impl Certificate {
    /// A pair of files, and the DNS name that the certificate must be valid for. Reads nothing yet.
    #[must_use]
    pub fn of_files(certificate: PathBuf, key: PathBuf, host: Option<String>) -> Self {
        Self::new(Source::Files { certificate, key }, host)
    }

    /// A Secret of type kubernetes.io/tls, and the DNS name that the certificate must be valid for.
    #[must_use]
    pub(crate) fn of_secret(secret: Arc<SecretContent>, host: Option<String>) -> Self {
        Self::new(Source::Secret(secret), host)
    }

    fn new(source: Source, host: Option<String>) -> Self {
        Self {
            source,
            host,
            current: Arc::default(),
            serving: None,
            chain: Arc::default(),
            candidate: None,
            last_content: None,
            problem: None,
            client_ca: None,
            http2: false,
            server: ServerTls::default(),
        }
        .configured()
    }

    /// Requires clients to present a certificate of the CA in this file.
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

    /// Reads the source, and puts a new pair into use unless the old one is trusted and the new one
    /// is not. Blocks on file I/O, so it must not run on a thread that serves requests.
    pub fn refresh(&mut self, now: SystemTime) -> Change {
        let read = self.read_source();
        let Some((pair, validity)) = self.candidate.take() else {
            return read.err().map_or(Change::None, Change::Rejected);
        };
        let problem_of = |validity: &Validity| validity.problem(self.host.as_deref(), now);
        let is_old_trusted = self.serving.as_ref().is_some_and(|old| problem_of(old).is_none());
        // An untrusted pair is better than none, and the newest untrusted pair is better than an
        // older one: the source is what the administrator wants.
        let Some(problem) = problem_of(&validity).filter(|_| is_old_trusted) else {
            self.chain = chain::write_pem(&pair.cert).into();
            self.current.0.store(Some(pair));
            self.serving = Some(validity);
            return Change::Loaded;
        };
        self.candidate = Some((pair, validity));
        match read {
            Ok(true) => {
                Change::Rejected(Error::Content { origin: self.source.origins().0, problem })
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
            let unread = CertificateStatus::unread();
            let problem = self.problem.clone().or(unread.problem);
            return CertificateStatus { problem, ..unread };
        };
        let problem = serving
            .problem(self.host.as_deref(), now)
            .map(|problem| format!("{}: {problem}", self.source.origins().0));
        let chain = Arc::clone(&self.chain);
        CertificateStatus { problem, not_after: Some(serving.not_after), chain }
    }

    /// Reads the source. If it changed to a valid pair, the pair becomes the candidate, and the
    /// result is `true`. A problem is an error when it is new, and `false` when it was reported
    /// before.
    fn read_source(&mut self) -> Result<bool, Error> {
        let parsed = self.source.read().and_then(|contents| {
            let Some(contents) = contents.filter(|it| self.last_content.as_ref() != Some(it))
            else {
                return Ok(None);
            };
            self.candidate = None;
            let (certificate, key) = self.last_content.insert(contents);
            let (of_certificate, of_key) = self.source.origins();
            parse_pair(certificate, key, &of_certificate, &of_key).map(Some)
        });
        match parsed {
            Ok(None) => Ok(false),
            Ok(pair) => {
                (self.candidate, self.problem) = (pair, None);
                Ok(true)
            }
            Err(error) => report_once(&mut self.problem, error),
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
    let origin = || path.display().to_string();
    std::fs::read(path)
        .map_err(|error| Error::Content { origin: origin(), problem: error.to_string() })
}

/// Keeps the problem of a source. It is an error if it is new, and `false` when it was reported before.
fn report_once(problem: &mut Option<String>, error: Error) -> Result<bool, Error> {
    let before = problem.replace(error.to_string());
    if before == *problem { Ok(false) } else { Err(error) }
}

/// Reads a certificate and its key. Messages name them `of_certificate` and `of_key`.
fn parse_pair(
    certificate: &[u8],
    key: &[u8],
    of_certificate: &str,
    of_key: &str,
) -> Result<(Arc<CertifiedKey>, Validity), Error> {
    let invalid =
        |origin: &str, problem: String| Error::Content { origin: origin.to_owned(), problem };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(of_certificate, format!("not a PEM certificate: {error}")))?;
    let Some(leaf) = chain.first() else {
        return Err(invalid(of_certificate, "holds no PEM certificate".to_owned()));
    };
    let validity = Validity::read(leaf)
        .map_err(|error| invalid(of_certificate, format!("not a certificate: {error}")))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| invalid(of_key, format!("not a PEM private key: {error}")))?;
    let key = any_supported_type(&key)
        .map_err(|error| invalid(of_key, format!("not a key that can sign: {error}")))?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        // `Unknown`: the public key of this type of key is not available, so it may match.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok((Arc::new(pair), validity))
        }
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(Error::Mismatch { certificate: of_certificate.to_owned(), key: of_key.to_owned() })
        }
        Err(error) => Err(invalid(of_certificate, format!("not a certificate: {error}"))),
    }
}

#[cfg(test)]
mod tests;
