//! The serving certificate: read from two files, and read again when they change.
//!
//! The files are compared by content and not by their times: a kubelet swaps a symbolic link, and
//! copies keep times. A pair that does not fit together, as it is for a moment when two files are
//! written one after the other, leaves the old pair in place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

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

/// The two files, and the pair that was last good.
#[derive(Debug)]
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    /// What the files held when they were last looked at, good or not.
    seen: Option<(Vec<u8>, Vec<u8>)>,
}

/// What a look at the files came to.
#[derive(Debug)]
pub enum Change {
    /// They are as they were.
    None,
    /// A new pair serves from now on.
    Loaded,
    /// They changed to something that cannot serve; the old pair stays.
    Rejected(Error),
}

#[derive(Debug, Default)]
struct Current(ArcSwapOption<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl Files {
    /// Names the files; nothing is read yet.
    #[must_use]
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, current: Arc::default(), seen: None }
    }

    /// Whether there is a pair that serves.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.current.0.load().is_some()
    }

    /// Looks at the files, and takes a new pair into service.
    pub fn refresh(&mut self) -> Change {
        match self.look() {
            Ok(None) => Change::None,
            Ok(Some(pair)) => {
                self.current.0.store(Some(Arc::new(pair)));
                Change::Loaded
            }
            Err(error) => Change::Rejected(error),
        }
    }

    fn look(&mut self) -> Result<Option<CertifiedKey>, Error> {
        let contents = (read(&self.certificate)?, read(&self.key)?);
        if self.seen.as_ref() == Some(&contents) {
            return Ok(None);
        }
        let (certificate, key) = self.seen.insert(contents);
        pair(certificate, key, &self.certificate, &self.key).map(Some)
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

fn pair(certificate: &[u8], key: &[u8], certificate_path: &Path, key_path: &Path) -> Result<CertifiedKey, Error> {
    let wrong = |path: &Path, problem: String| Error::Content { path: path.to_owned(), problem };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(certificate_path, format!("not a PEM certificate: {error}")))?;
    if chain.is_empty() {
        return Err(wrong(certificate_path, "holds no PEM certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong(key_path, format!("not a PEM private key: {error}")))?;
    let key = any_supported_type(&key)
        .map_err(|error| wrong(key_path, format!("not a key that can sign: {error}")))?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        // Unknown: a kind of key that cannot tell its public half; it may well fit.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(pair),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Error::Mismatch {
            certificate: certificate_path.to_owned(),
            key: key_path.to_owned(),
        }),
        Err(error) => Err(wrong(certificate_path, format!("not a certificate: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn written(folder: &tempfile::TempDir, certificate: &str, key: &str) -> Files {
        let paths = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        std::fs::write(&paths.0, certificate).unwrap();
        std::fs::write(&paths.1, key).unwrap();
        Files::new(paths.0, paths.1)
    }

    #[test]
    fn the_old_pair_serves_until_the_new_one_fits() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (made(), made());
        let mut files = written(&folder, &old.0, &old.1);
        assert!(matches!(files.refresh(), Change::Loaded));
        assert!(matches!(files.refresh(), Change::None));
        let serving = || files.current.0.load_full().unwrap();
        let first = serving();

        std::fs::write(&files.certificate, &new.0).unwrap();
        let change = files.refresh();
        assert!(matches!(change, Change::Rejected(Error::Mismatch { .. })), "{change:?}");
        // Said once, not at every look.
        assert!(matches!(files.refresh(), Change::None));
        assert!(Arc::ptr_eq(&first, &files.current.0.load_full().unwrap()));

        std::fs::write(&files.key, &new.1).unwrap();
        assert!(matches!(files.refresh(), Change::Loaded));
        assert!(!Arc::ptr_eq(&first, &files.current.0.load_full().unwrap()));
    }

    #[test]
    fn what_is_no_pair_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = made();
        for (certificate, key, part) in [
            ("", key.as_str(), "tls.crt: holds no PEM certificate"),
            ("garbage", &key, "tls.crt: holds no PEM certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "tls.crt: not a certificate"),
            (&certificate, "", "tls.key: not a PEM private key"),
            (&certificate, &certificate, "tls.key: not a PEM private key"),
        ] {
            let mut files = written(&folder, certificate, key);
            let Change::Rejected(error) = files.refresh() else { panic!("{part}") };
            assert!(error.to_string().contains(part), "{error}");
            assert!(!files.is_loaded());
        }
        let mut files = Files::new(folder.path().join("absent.crt"), folder.path().join("absent.key"));
        assert!(matches!(files.refresh(), Change::Rejected(Error::Read { .. })));
    }
}
