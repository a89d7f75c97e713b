//! The serving certificate: read from two files, and read again when they change.
//!
//! Files are compared by content, not by modification time: a kubelet swaps a symbolic link, and
//! copies keep their times. The old pair stays in use while the certificate and the key in the
//! files do not match (two files are written one after the other), and while the API server trusts
//! the old certificate and would not trust the new one. Trust is checked on every refresh, not only
//! when the files change: certificates expire and become valid with time.

pub(crate) mod validity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
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

    /// The configuration of the TLS server, which always serves the pair in use: TLS 1.2 and 1.3,
    /// HTTP/2 and HTTP/1.1.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let resolver: Arc<Current> = Arc::clone(&self.current);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring serves the default protocol versions")
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
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
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const NAME: &str = "stowplan-webhook.stowplan-system.svc";

    /// A pair for `name`, valid from the beginning of year `from` to the beginning of year `to`.
    fn pair_of(name: &str, from: i32, to: i32) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(to, 1, 1);
        (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    /// About the middle of a year.
    fn in_year(year: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_557_600 + 15_000_000)
    }

    fn write(files: &Files, (certificate, key): &(String, String)) {
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
    }

    fn files(folder: &tempfile::TempDir, pair: &(String, String)) -> Files {
        let path = |name| folder.path().join(name);
        let files = Files::new(path("tls.crt"), path("tls.key"), Some(NAME.to_owned()));
        write(&files, pair);
        files
    }

    fn serving(files: &Files) -> Arc<CertifiedKey> {
        files.current.0.load_full().unwrap()
    }

    #[test]
    fn the_old_pair_serves_until_the_new_key_matches() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (pair_of(NAME, 2020, 2040), pair_of(NAME, 2020, 2050));
        let now = in_year(2026);
        let mut files = files(&folder, &old);
        assert!(files.status(now).problem.is_some());
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(matches!(files.refresh(now), Change::None));
        let first = serving(&files);

        std::fs::write(&files.certificate, &new.0).unwrap();
        let change = files.refresh(now);
        assert!(matches!(change, Change::Rejected(Error::Mismatch { .. })), "{change:?}");
        // Reported once, not on every refresh.
        assert!(matches!(files.refresh(now), Change::None));
        assert!(Arc::ptr_eq(&first, &serving(&files)));
        assert_eq!(files.status(now).problem, None);

        std::fs::write(&files.key, &new.1).unwrap();
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(!Arc::ptr_eq(&first, &serving(&files)));
    }

    #[test]
    fn the_status_changes_as_time_passes() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(&folder, &pair_of(NAME, 2025, 2027));
        let problem = |files: &Files, year| files.status(in_year(year)).problem;
        // Not valid yet, but no other pair exists.
        assert!(matches!(files.refresh(in_year(2024)), Change::Loaded));
        assert!(
            problem(&files, 2024)
                .unwrap()
                .ends_with("tls.crt: not valid before 2025-01-01T00:00:00Z")
        );
        assert_eq!(problem(&files, 2025), None);
        assert!(
            problem(&files, 2027).unwrap().ends_with("tls.crt: expired at 2027-01-01T00:00:00Z")
        );
        assert_eq!(files.status(in_year(2026)).days_left(in_year(2026)), Some(191));
        assert_eq!(files.status(in_year(2028)).days_left(in_year(2028)), Some(0));
    }

    #[test]
    fn an_untrusted_pair_does_not_replace_a_trusted_one() {
        let folder = tempfile::tempdir().unwrap();
        let now = in_year(2026);
        let mut files = files(&folder, &pair_of(NAME, 2020, 2030));
        assert!(matches!(files.refresh(now), Change::Loaded));
        let first = serving(&files);
        for (bad, why) in [
            (
                pair_of("other.svc", 2020, 2030),
                format!("is for other.svc, and the API server calls {NAME}"),
            ),
            (pair_of(NAME, 2010, 2020), "expired at 2020-01-01T00:00:00Z".to_owned()),
            (pair_of(NAME, 2028, 2040), "not valid before 2028-01-01T00:00:00Z".to_owned()),
        ] {
            write(&files, &bad);
            let Change::Rejected(error) = files.refresh(now) else { panic!("{why}") };
            assert!(error.to_string().ends_with(&why), "{error}");
            assert!(matches!(files.refresh(now), Change::None));
            assert!(Arc::ptr_eq(&first, &serving(&files)));
            assert_eq!(files.status(now).problem, None);
        }
        // The last pair becomes valid in 2028: it is then put into use without a change of the
        // files.
        assert!(matches!(files.refresh(in_year(2028)), Change::Loaded));
        assert_eq!(files.status(in_year(2028)).problem, None);
    }

    #[test]
    fn an_untrusted_pair_is_better_than_none_and_the_newest_of_them_serves() {
        let folder = tempfile::tempdir().unwrap();
        let now = in_year(2026);
        let mut files = files(&folder, &pair_of("other.svc", 2020, 2030));
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(files.status(now).problem.is_some());
        write(&files, &pair_of("another.svc", 2020, 2030));
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(files.status(now).problem.unwrap().contains("is for another.svc"));
        write(&files, &pair_of(NAME, 2020, 2030));
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert_eq!(files.status(now).problem, None);
    }

    #[test]
    fn an_invalid_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let now = in_year(2026);
        let (certificate, key) = pair_of(NAME, 2020, 2030);
        for (certificate, key, part) in [
            ("", key.as_str(), "tls.crt: holds no PEM certificate"),
            ("garbage", &key, "tls.crt: holds no PEM certificate"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                &key,
                "tls.crt: not a certificate",
            ),
            (&certificate, "", "tls.key: not a PEM private key"),
            (&certificate, &certificate, "tls.key: not a PEM private key"),
        ] {
            let mut files = files(&folder, &(certificate.to_owned(), key.to_owned()));
            let Change::Rejected(error) = files.refresh(now) else { panic!("{part}") };
            assert!(error.to_string().contains(part), "{error}");
            assert!(files.status(now).problem.unwrap().contains(part));
        }
        let absent = |name| folder.path().join(name);
        let mut files = Files::new(absent("absent.crt"), absent("absent.key"), None);
        assert!(matches!(files.refresh(now), Change::Rejected(Error::Read { .. })));
        assert!(matches!(files.refresh(now), Change::None));
        assert!(files.status(now).problem.unwrap().contains("absent.crt"));
    }

    #[test]
    fn files_that_are_deleted_and_restored_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let now = in_year(2026);
        let pair = pair_of(NAME, 2020, 2030);
        let mut files = files(&folder, &pair);
        assert!(matches!(files.refresh(now), Change::Loaded));
        std::fs::remove_file(&files.key).unwrap();
        assert!(matches!(files.refresh(now), Change::Rejected(Error::Read { .. })));
        write(&files, &pair);
        assert!(matches!(files.refresh(now), Change::None));
        assert_eq!(files.status(now).problem, None);
    }
}
