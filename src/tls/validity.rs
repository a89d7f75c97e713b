//! The dates and DNS names for which a certificate is valid.
//!
//! The API server checks them at each handshake. If it does not trust the certificate, the call of
//! the webhook fails, and with failurePolicy Ignore that stays unnoticed. So stowplan checks them,
//! too, by the rules of the API server's library: only subject alternative names count, and a
//! wildcard covers one label.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// A certificate's dates and names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Validity {
    /// The first moment at which the certificate is valid.
    pub not_before: SystemTime,
    /// The last moment at which it is valid.
    pub not_after: SystemTime,
    /// The DNS names among its subject alternative names.
    pub names: Vec<String>,
}

impl Validity {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// Returns the reason why the bytes are not a certificate.
    pub(crate) fn read(certificate: &[u8]) -> Result<Self, String> {
        let (_, certificate) =
            X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
        let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = names.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
        let validity = certificate.validity();
        Ok(Self {
            not_before: time(validity.not_before.timestamp()),
            not_after: time(validity.not_after.timestamp()),
            names: names.collect(),
        })
    }

    /// Returns the reason why a client that connects to `name` (`None`: any) would not trust the certificate at `now`.
    #[must_use]
    pub(crate) fn problem(&self, name: Option<&str>, now: SystemTime) -> Option<String> {
        if now < self.not_before {
            return Some(format!("not valid before {}", date(self.not_before)));
        }
        if now > self.not_after {
            return Some(format!("expired at {}", date(self.not_after)));
        }
        let name = name.filter(|name| !self.names.iter().any(|pattern| covers(pattern, name)))?;
        Some(match self.names.as_slice() {
            [] => format!(
                "names no host (subject alternative names), and the API server calls {name}"
            ),
            names => {
                // A few names are enough to recognize a wrong file.
                let few: Vec<_> =
                    names.iter().take(4).map(|name| name.escape_debug().to_string()).collect();
                let more = if names.len() > few.len() { ", …" } else { "" };
                format!("is for {}{more}, and the API server calls {name}", few.join(", "))
            }
        })
    }
}

/// Returns true if a certificate for `pattern` serves `name`.
fn covers(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix("*."), name.split_once('.')) {
        (Some(parent), Some((_, rest))) => rest.eq_ignore_ascii_case(parent),
        (Some(_), None) => false,
        (None, _) => pattern.eq_ignore_ascii_case(name),
    }
}

fn time(seconds: i64) -> SystemTime {
    // Times before 1970 count as 1970: both are in the past.
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn date(time: SystemTime) -> String {
    // Fails only for years after 9999.
    jiff::Timestamp::try_from(time).map_or_else(|_| "(no date)".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn validity(names: &[&str]) -> Validity {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Validity { not_before: at(1_000), not_after: at(2_000), names }
    }

    #[test]
    fn dates_are_inclusive() {
        let validity = validity(&["a.b.svc"]);
        let problem = |seconds| validity.problem(Some("a.b.svc"), at(seconds));
        assert_eq!(problem(999), Some("not valid before 1970-01-01T00:16:40Z".to_owned()));
        assert_eq!(problem(1_000), None);
        assert_eq!(problem(2_000), None);
        assert_eq!(problem(2_001), Some("expired at 1970-01-01T00:33:20Z".to_owned()));
    }

    #[test]
    fn names_are_compared_as_the_api_server_does() {
        for (pattern, covered) in [
            ("webhook.system.svc", true),
            ("WebHook.system.SVC", true),
            ("*.system.svc", true),
            ("*.svc", false),
            ("*.webhook.system.svc", false),
            ("webhook.system", false),
            ("webhook.system.svc.cluster.local", false),
            ("w*.system.svc", false),
            ("*", false),
            ("", false),
        ] {
            let problem = validity(&[pattern]).problem(Some("webhook.system.svc"), at(1_500));
            assert_eq!(problem.is_none(), covered, "{pattern}: {problem:?}");
        }
        assert_eq!(validity(&[]).problem(None, at(1_500)), None);
        let problem = validity(&["a", "b", "c", "d", "e"]).problem(Some("x"), at(1_500)).unwrap();
        assert_eq!(problem, "is for a, b, c, d, …, and the API server calls x");
    }
}
