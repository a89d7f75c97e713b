//! Objects that are there as another release has left them: written to etcd as `kubectl get -o json`
//! shows them, with their UIDs and statuses, past admission.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::ControlPlane;
use super::address::Range;
use crate::http;

impl ControlPlane {
    /// Stores these objects at once, in place of those of the same name: no controller sees an object
    /// without its owner. Their namespaces must exist.
    ///
    /// Built-in kinds are those that tests need; of other kinds the plural must be regular. Not with real
    /// nodes, whose etcd is in a network namespace.
    ///
    /// # Errors
    /// An object has no kind or name, there are more than 128, or etcd does not answer.
    pub async fn store(&self, objects: &[Value]) -> Result<()> {
        let puts: Vec<Value> = objects
            .iter()
            .map(|object| {
                let (key, value) = (BASE64.encode(key(object)?), BASE64.encode(object.to_string()));
                Ok(json!({"requestPut": {"key": key, "value": value}}))
            })
            .collect::<Result<_>>()?;
        let etcd = self.range.socket(Range::ETCD);
        let answer = http::post(etcd, "/v3/kv/txn", &json!({"success": puts}).to_string()).await?;
        ensure!(answer.status == 200, "etcd: {} {}", answer.status, answer.body);
        Ok(())
    }
}

/// Where the API server keeps an object.
fn key(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").context("an object without a kind")?;
    let name = text("/metadata/name").with_context(|| format!("a {kind} without a name"))?;
    let plural = format!("{}s", kind.to_lowercase());
    let group = text("/apiVersion").and_then(|version| version.split_once('/')?.0.into());
    let folder = match (group, kind) {
        (None, "Node") => "minions".to_owned(),
        (None, "Service") => "services/specs".to_owned(),
        // The groups of Kubernetes that are older than this rule have no folder of their own.
        (None | Some("apps" | "batch"), _) => plural,
        (Some(group), _) => format!("{group}/{plural}"),
    };
    Ok(match text("/metadata/namespace") {
        Some(namespace) => format!("/registry/{folder}/{namespace}/{name}"),
        None => format!("/registry/{folder}/{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_keys_of_the_api_server() {
        let of = |version: &str, kind: &str, namespace: Value| {
            let metadata = json!({"name": "a", "namespace": namespace});
            key(&json!({"apiVersion": version, "kind": kind, "metadata": metadata})).unwrap()
        };
        assert_eq!(of("v1", "Node", Value::Null), "/registry/minions/a");
        assert_eq!(of("v1", "Service", json!("n")), "/registry/services/specs/n/a");
        assert_eq!(of("apps/v1", "StatefulSet", json!("n")), "/registry/statefulsets/n/a");
        let pool = of("stowplan.dev/v1alpha1", "HostPool", json!("n"));
        assert_eq!(pool, "/registry/stowplan.dev/hostpools/n/a");
        assert!(key(&json!({"kind": "Pod", "metadata": {}})).is_err());
        assert!(key(&json!({"metadata": {"name": "a"}})).is_err());
    }
}
