//! Objects that are there as another release has left them: written to etcd as `kubectl get -o json`
//! shows them, with their UIDs and statuses, past admission.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::ControlPlane;
use super::address::Range;
use crate::http;

/// How many objects are stored at a time by [`ControlPlane::store_each`].
const PUTS_AT_ONCE: usize = 16;

impl ControlPlane {
    /// Stores these objects at once, in place of those of the same name: no controller sees an object
    /// without its owner. Their namespaces must exist.
    ///
    /// They all get the same resourceVersion, which the API server never does: with thousands of objects,
    /// scheduler and controller manager were seen not to learn of some volumes for minutes. So this is for
    /// a few objects; [`ControlPlane::store_each`] is for many.
    ///
    /// Built-in kinds are those that tests need; of other kinds the plural must be regular. Not with real
    /// nodes, whose etcd is in a network namespace.
    ///
    /// # Errors
    /// An object has no kind or name, there are more than 128, or etcd does not answer.
    pub async fn store(&self, objects: &[Value]) -> Result<()> {
        let puts = objects.iter().map(|object| Ok(json!({"requestPut": put(object)?})));
        let puts: Vec<Value> = puts.collect::<Result<_>>()?;
        self.ask_etcd("/v3/kv/txn", &json!({"success": puts})).await
    }

    /// The same, each with a resourceVersion of its own, begun in this order and some at a time.
    ///
    /// # Errors
    /// An object has no kind or name, or etcd does not answer.
    pub async fn store_each(&self, objects: &[Value]) -> Result<()> {
        let puts = stream::iter(objects).map(Ok::<_, anyhow::Error>);
        puts.try_for_each_concurrent(PUTS_AT_ONCE, async |object| {
            self.ask_etcd("/v3/kv/put", &put(object)?).await
        })
        .await
    }

    async fn ask_etcd(&self, path: &str, request: &Value) -> Result<()> {
        let etcd = self.range.socket(Range::ETCD);
        let answer = http::post(etcd, path, &request.to_string()).await?;
        ensure!(answer.status == 200, "etcd: {} {}", answer.status, answer.body);
        Ok(())
    }
}

/// etcd's request to store an object.
fn put(object: &Value) -> Result<Value> {
    let (key, value) = (BASE64.encode(key(object)?), BASE64.encode(object.to_string()));
    Ok(json!({"key": key, "value": value}))
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
