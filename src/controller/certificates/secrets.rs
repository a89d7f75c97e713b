//! The two Secrets: their labels, and what their keys hold.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::tls::issue::{self, KnownCa, Pair};
use crate::tls::{CERTIFICATE, KEY};

/// The label by which a Secret is known as stowplan's, beside [`MANAGED_BY`].
pub(crate) const ROLE: &str = "stowplan.dev/tls";

const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "stowplan");

/// The keys of the CA in its Secret: the certificate and its key.
const CA: [&str; 2] = ["ca.crt", "ca.key"];

/// The use of a Secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// The CA.
    Authority,
    /// The webhook's certificate.
    Serving,
}

impl Role {
    fn label(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Serving => "serving",
        }
    }

    /// The names of the Secrets in an installation whose objects' names start with `prefix`.
    pub(crate) fn names(prefix: &str) -> [(String, Self); 2] {
        [(format!("{prefix}-tls"), Self::Serving), (format!("{prefix}-ca"), Self::Authority)]
    }

    /// Returns true if these are the labels of stowplan's Secret for this.
    pub(crate) fn is_in(self, labels: &BTreeMap<String, String>) -> bool {
        let is = |key: &str, value: &str| labels.get(key).is_some_and(|it| it == value);
        is(MANAGED_BY.0, MANAGED_BY.1) && is(ROLE, self.label())
    }

    /// Returns whether a Secret that was found is stowplan's, for this.
    pub(super) fn owns(self, secret: &Value) -> bool {
        let labels = serde_json::from_value(secret["metadata"]["labels"].clone());
        labels.is_ok_and(|labels| self.is_in(&labels))
    }

    pub(super) fn new_secret(self, namespace: &str, name: &str, data: &Value) -> Value {
        let kind = match self {
            Self::Authority => "Opaque",
            Self::Serving => "kubernetes.io/tls",
        };
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": {MANAGED_BY.0: MANAGED_BY.1, ROLE: self.label()},
            },
            "data": data,
        })
    }
}

fn bytes(secret: &Value, key: &str) -> Option<Vec<u8>> {
    BASE64.decode(secret["data"][key].as_str()?).ok()
}

/// The certificate and the key of the webhook; empty if they are missing.
pub(super) fn read_pair(secret: &Value) -> (Vec<u8>, Vec<u8>) {
    let read = |key| bytes(secret, key).unwrap_or_default();
    (read(CERTIFICATE), read(KEY))
}

/// Reads the CA.
///
/// # Errors
/// Returns the reason why it cannot be used.
pub(super) fn read_ca(secret: &Value) -> Result<KnownCa, String> {
    let [Some(certificate), Some(key)] = CA.map(|key| bytes(secret, key)) else {
        return Err("the CA or its key is missing".to_owned());
    };
    issue::read_ca(&certificate, &key)
}

/// The data of the Secret with a CA.
pub(super) fn format_ca(ca: &Pair) -> Value {
    let [certificate, key] = CA;
    json!({certificate: BASE64.encode(&ca.certificate), key: BASE64.encode(&ca.key)})
}

/// The data of the Secret with the webhook's certificate.
pub(super) fn format_serving(pair: &Pair, ca: &KnownCa) -> Value {
    json!({
        CERTIFICATE: BASE64.encode(&pair.certificate),
        KEY: BASE64.encode(&pair.key),
        // For people, and for programs that verify the webhook; stowplan does not read it.
        "ca.crt": BASE64.encode(&ca.pair.certificate),
    })
}
