//! The serving certificate: read from two files, and read again when they change.
//!
//! The files are compared by content and not by their times: a kubelet swaps a symbolic link, and
//! copies keep times. A pair that does not fit together, as it is for a moment when two files are
//! written one after the other, leaves the old pair in place; so does a pair that the API server
//! would not trust, for as long as the old one is trusted. Both are judged at every look and not only
//! when the files change: certificates expire, and begin to be valid, by themselves.

pub mod validity;

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

/// Why a pair of files is not a serving certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The key is not the certificate's.
    #[error("{} is not the key of {}", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// The two files, and the pair that serves.
#[derive(Debug)]
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The name that the API server calls.
    name: Option<String>,
    current: Arc<Current>,
    /// What is known of the pair that serves.
    serving: Option<Validity>,
    /// The pair that the files held last, while it does not serve.
    candidate: Option<(Arc<CertifiedKey>, Validity)>,
    /// What the files held when they were last looked at, good or not.
    seen: Option<(Vec<u8>, Vec<u8>)>,
    /// Why they could not be read when they were last looked at.
    unreadable: Option<String>,
}

/// What a look at the files came to.
#[derive(Debug)]
pub enum Change {
    /// Nothing new.
    None,
    /// A new pair serves from now on.
    Loaded,
    /// They changed to something that cannot serve; the old pair stays.
    Rejected(Error),
}

/// How the certificate that serves stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Why the API server would not trust it; `None` when it would.
    pub problem: Option<String>,
    /// When it expires.
    pub not_after: Option<SystemTime>,
}

impl Standing {
    /// Before the first look.
    #[must_use]
    pub fn unread() -> Self {
        Self { problem: Some("no certificate was read yet".to_owned()), not_after: None }
    }

    /// Whole days until it expires, 0 when it has.
    #[must_use]
    pub fn days_left(&self, now: SystemTime) -> Option<u64> {
        let left = self.not_after?.duration_since(now).unwrap_or_default();
        Some(left.as_secs() / (24 * 60 * 60))
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
    /// Names the files, and the host that their certificate has to be for; nothing is read yet.
    #[must_use]
    pub fn new(certificate: PathBuf, key: PathBuf, name: Option<String>) -> Self {
        Self {
            certificate,
            key,
            name,
            current: Arc::default(),
            serving: None,
            candidate: None,
            seen: None,
            unreadable: None,
        }
    }

    /// Looks at the files, and takes a new pair into service if it is the better one. Reads files:
    /// not for a thread that serves.
    pub fn refresh(&mut self, now: SystemTime) -> Change {
        let looked = self.look();
        let Some((pair, validity)) = self.candidate.take() else {
            return looked.err().map_or(Change::None, Change::Rejected);
        };
        let trusted = |validity: &Validity| validity.problem(self.name.as_deref(), now).is_none();
        // A pair that is not trusted is still better than none, or than another of that kind: the
        // files are what the administrator wants.
        let takes_over = trusted(&validity) || !self.serving.as_ref().is_some_and(trusted);
        let problem = validity.problem(self.name.as_deref(), now).unwrap_or_default();
        if takes_over {
            self.current.0.store(Some(pair));
            self.serving = Some(validity);
            return Change::Loaded;
        }
        self.candidate = Some((pair, validity));
        match looked {
            Ok(true) => {
                Change::Rejected(Error::Content { path: self.certificate.clone(), problem })
            }
            Ok(false) => Change::None,
            Err(error) => Change::Rejected(error),
        }
    }

    /// How the certificate stands at `now`.
    #[must_use]
    pub fn standing(&self, now: SystemTime) -> Standing {
        let Some(serving) = &self.serving else {
            let problem =
                self.unreadable.clone().unwrap_or_else(|| "no certificate was read yet".to_owned());
            return Standing { problem: Some(problem), not_after: None };
        };
        let problem = serving
            .problem(self.name.as_deref(), now)
            .map(|problem| format!("{}: {problem}", self.certificate.display()));
        Standing { problem, not_after: Some(serving.not_after) }
    }

    /// Makes a pair that the files have changed to the candidate; tells whether they have.
    fn look(&mut self) -> Result<bool, Error> {
        let read =
            read(&self.certificate).and_then(|certificate| Ok((certificate, read(&self.key)?)));
        let looked = read.and_then(|contents| {
            if self.seen.as_ref() == Some(&contents) {
                return Ok(None);
            }
            self.candidate = None;
            let (certificate, key) = self.seen.insert(contents);
            pair(certificate, key, &self.certificate, &self.key).map(Some)
        });
        match looked {
            Ok(pair) => {
                let changed = pair.is_some();
                if changed {
                    (self.candidate, self.unreadable) = (pair, None);
                }
                Ok(changed)
            }
            Err(error) => {
                // Told once, not at every look.
                let told = self.unreadable.replace(error.to_string()) == Some(error.to_string());
                if told { Ok(false) } else { Err(error) }
            }
        }
    }

    /// A TLS configuration that serves whatever pair is current: TLS 1.2 and 1.3, HTTP/2 and
    /// HTTP/1.1.
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

fn pair(
    certificate: &[u8],
    key: &[u8],
    certificate_path: &Path,
    key_path: &Path,
) -> Result<(Arc<CertifiedKey>, Validity), Error> {
    let wrong = |path: &Path, problem: String| Error::Content { path: path.to_owned(), problem };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(certificate_path, format!("not a PEM certificate: {error}")))?;
    let Some(leaf) = chain.first() else {
        return Err(wrong(certificate_path, "holds no PEM certificate".to_owned()));
    };
    let validity = Validity::read(leaf)
        .map_err(|error| wrong(certificate_path, format!("not a certificate: {error}")))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong(key_path, format!("not a PEM private key: {error}")))?;
    let key = any_supported_type(&key)
        .map_err(|error| wrong(key_path, format!("not a key that can sign: {error}")))?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        // Unknown: a kind of key that cannot tell its public half; it may well fit.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok((Arc::new(pair), validity))
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(Error::Mismatch {
            certificate: certificate_path.to_owned(),
            key: key_path.to_owned(),
        }),
        Err(error) => Err(wrong(certificate_path, format!("not a certificate: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const NAME: &str = "stowplan-webhook.stowplan-system.svc";

    /// A pair for `name`, valid in the years from `from` to `to`.
    fn pair_of(name: &str, from: i32, to: i32) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(to, 1, 1);
        (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    /// The middle of a year, nearly.
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
    fn the_old_pair_serves_until_the_new_one_fits() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (pair_of(NAME, 2020, 2040), pair_of(NAME, 2020, 2050));
        let now = in_year(2026);
        let mut files = files(&folder, &old);
        assert!(files.standing(now).problem.is_some());
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(matches!(files.refresh(now), Change::None));
        let first = serving(&files);

        std::fs::write(&files.certificate, &new.0).unwrap();
        let change = files.refresh(now);
        assert!(matches!(change, Change::Rejected(Error::Mismatch { .. })), "{change:?}");
        // Said once, not at every look.
        assert!(matches!(files.refresh(now), Change::None));
        assert!(Arc::ptr_eq(&first, &serving(&files)));
        assert_eq!(files.standing(now).problem, None);

        std::fs::write(&files.key, &new.1).unwrap();
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(!Arc::ptr_eq(&first, &serving(&files)));
    }

    #[test]
    fn the_standing_changes_as_time_passes() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(&folder, &pair_of(NAME, 2025, 2027));
        let problem = |files: &Files, year| files.standing(in_year(year)).problem;
        // Not valid yet, but there is no other.
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
        assert_eq!(files.standing(in_year(2026)).days_left(in_year(2026)), Some(191));
        assert_eq!(files.standing(in_year(2028)).days_left(in_year(2028)), Some(0));
    }

    #[test]
    fn a_pair_that_nobody_would_trust_replaces_no_trusted_one() {
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
            assert_eq!(files.standing(now).problem, None);
        }
        // The last of them is for later: it takes over by itself, without any change of the files.
        assert!(matches!(files.refresh(in_year(2028)), Change::Loaded));
        assert_eq!(files.standing(in_year(2028)).problem, None);
    }

    #[test]
    fn an_untrusted_pair_is_better_than_none_and_the_newest_of_them_serves() {
        let folder = tempfile::tempdir().unwrap();
        let now = in_year(2026);
        let mut files = files(&folder, &pair_of("other.svc", 2020, 2030));
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(files.standing(now).problem.is_some());
        write(&files, &pair_of("another.svc", 2020, 2030));
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert!(files.standing(now).problem.unwrap().contains("is for another.svc"));
        write(&files, &pair_of(NAME, 2020, 2030));
        assert!(matches!(files.refresh(now), Change::Loaded));
        assert_eq!(files.standing(now).problem, None);
    }

    #[test]
    fn what_is_no_pair_is_named() {
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
            assert!(files.standing(now).problem.unwrap().contains(part));
        }
        let absent = |name| folder.path().join(name);
        let mut files = Files::new(absent("absent.crt"), absent("absent.key"), None);
        assert!(matches!(files.refresh(now), Change::Rejected(Error::Read { .. })));
        assert!(matches!(files.refresh(now), Change::None));
        assert!(files.standing(now).problem.unwrap().contains("absent.crt"));
    }

    #[test]
    fn files_that_go_and_come_back_as_they_were_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let now = in_year(2026);
        let pair = pair_of(NAME, 2020, 2030);
        let mut files = files(&folder, &pair);
        assert!(matches!(files.refresh(now), Change::Loaded));
        std::fs::remove_file(&files.key).unwrap();
        assert!(matches!(files.refresh(now), Change::Rejected(Error::Read { .. })));
        write(&files, &pair);
        assert!(matches!(files.refresh(now), Change::None));
        assert_eq!(files.standing(now).problem, None);
    }
}
