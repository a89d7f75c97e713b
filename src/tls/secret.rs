//! The content of a Secret of type kubernetes.io/tls, as a watch last reported it.

use std::sync::{Mutex, PoisonError};

use super::Error;

/// The key of the certificate chain.
pub(crate) const CERTIFICATE: &str = "tls.crt";

/// The key of the private key.
pub(crate) const KEY: &str = "tls.key";

/// The bytes of the certificate and of the key.
pub(super) type Contents = (Vec<u8>, Vec<u8>);

/// The bytes, or the reason why there are none.
type Content = Result<Contents, String>;

/// The content of a Secret that a watch has last reported.
#[derive(Debug)]
pub(crate) struct SecretContent {
    /// Namespace and name.
    name: String,
    content: Mutex<Option<Content>>,
}

impl SecretContent {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { name: format!("{namespace}/{name}"), content: Mutex::default() }
    }

    pub(crate) fn set(&self, content: Content) {
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = Some(content);
    }

    pub(super) fn read(&self) -> Result<Option<Contents>, Error> {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let origin = || format!("Secret {}", self.name);
        content.transpose().map_err(|problem| Error::Content { origin: origin(), problem })
    }

    /// Returns the name of one of its keys in messages.
    pub(super) fn origin(&self, key: &str) -> String {
        format!("Secret {}, {key}", self.name)
    }
}
