//! One request to the API server, as the proxy saw it.

use hyper::{Method, Uri};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path, such as `/api/v1/nodes/node-1`.
    pub path: String,
    /// The part of the address after the question mark; empty without one.
    pub query: String,
}

impl Call {
    pub(super) fn new(method: Method, uri: &Uri) -> Self {
        Self {
            method,
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
        }
    }

    /// Returns true if its path fits `pattern`: segment by segment, `*` for any one of them and `**`, at
    /// the end, for one or more. `/api/v1/nodes/*` is every node, and not its status.
    #[must_use]
    pub fn is_at(&self, pattern: &str) -> bool {
        let mut segments = self.path.split('/');
        for wanted in pattern.split('/') {
            match (wanted, segments.next()) {
                (_, None) => return false,
                ("**", Some(_)) => return true,
                ("*", Some(_)) => {}
                (wanted, Some(segment)) if wanted == segment => {}
                _ => return false,
            }
        }
        segments.next().is_none()
    }

    /// Returns true if it follows changes.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        let is_asked = |pair: &str| matches!(pair, "watch=1" | "watch=true");
        self.method == Method::GET && self.query.split('&').any(is_asked)
    }

    /// Returns true if it reads a collection from its beginning. Kubernetes knows only by the path what a
    /// collection is: its last segment is a resource and not a name.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.method == Method::GET
            && self.resource().is_some_and(|(_, name)| name.is_none())
            && !self.is_watch()
            && !self.query.split('&').any(|pair| pair.starts_with("continue="))
    }

    /// Returns true if it changes something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self.method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
    }

    /// Returns true if it changes an object that is neither a Lease nor an event.
    #[must_use]
    pub fn is_write_to_object(&self) -> bool {
        self.is_write()
            && self
                .resource()
                .is_some_and(|(resource, _)| !["events", "leases"].contains(&resource))
    }

    /// The resource's plural name, and the object's name where the path has one.
    fn resource(&self) -> Option<(&str, Option<&str>)> {
        let mut segments = self.path.strip_prefix('/')?.split('/');
        // api/v1 or apis/GROUP/VERSION.
        match segments.next()? {
            "api" => segments.next(),
            "apis" => segments.nth(1),
            _ => None,
        }?;
        let first = segments.next()?;
        let second = segments.next();
        match (first, second, segments.next()) {
            ("namespaces", Some(_), Some(resource)) => {
                // Of the namespace itself there is its status and its end.
                Some((resource, segments.next()))
            }
            (resource, name, _) => Some((resource, name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, uri: &str) -> Call {
        Call::new(method.parse().unwrap(), &uri.parse().unwrap())
    }

    #[test]
    fn a_pattern_fits_whole_paths() {
        let patch = call("PATCH", "/api/v1/nodes/n1?fieldManager=x");
        for (pattern, fits) in [
            ("/api/v1/nodes/n1", true),
            ("/api/v1/nodes/*", true),
            ("/api/v1/*/n1", true),
            ("/api/**", true),
            ("/api/v1/nodes/n1/**", false),
            ("/api/v1/nodes/n2", false),
            ("/api/v1/nodes", false),
            ("/api/v1/nodes/*/status", false),
            ("/api/v1/node/*", false),
            ("", false),
        ] {
            assert_eq!(patch.is_at(pattern), fits, "{pattern}");
        }
    }

    #[test]
    fn a_list_is_told_from_a_watch_a_get_and_a_further_page() {
        for (method, uri, list, watch) in [
            ("GET", "/api/v1/pods", true, false),
            ("GET", "/api/v1/pods?limit=500&resourceVersion=0", true, false),
            ("GET", "/api/v1/pods?limit=500&continue=abc", false, false),
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=290", false, true),
            ("GET", "/api/v1/namespaces", true, false),
            ("GET", "/api/v1/namespaces/default", false, false),
            ("GET", "/api/v1/namespaces/default/pods", true, false),
            ("GET", "/api/v1/namespaces/default/pods/a", false, false),
            ("GET", "/apis/stowplan.dev/v1alpha1/hostpools?", true, false),
            ("GET", "/apis/stowplan.dev/v1alpha1/namespaces/a/hostpools/b", false, false),
            ("GET", "/api/v1/nodes/n1", false, false),
            ("GET", "/readyz", false, false),
            ("GET", "/apis", false, false),
            ("POST", "/api/v1/namespaces/default/pods", false, false),
        ] {
            let call = call(method, uri);
            assert_eq!((call.is_list(), call.is_watch()), (list, watch), "{method} {uri}");
        }
    }

    #[test]
    fn leases_and_events_are_not_counted_among_the_work() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/s/leases/stowplan-controller";
        let event = "/apis/events.k8s.io/v1/namespaces/s/events";
        for (method, uri, counts) in [
            ("PUT", lease, false),
            ("POST", event, false),
            ("PATCH", "/api/v1/nodes/n1", true),
            ("PATCH", "/apis/stowplan.dev/v1alpha1/namespaces/a/hostpools/b/status", true),
            ("DELETE", "/api/v1/namespaces/a/pods/leases", true),
            ("GET", "/api/v1/nodes/n1", false),
        ] {
            assert_eq!(call(method, uri).is_write_to_object(), counts, "{method} {uri}");
        }
    }
}
