//! The kinds of other projects, with open schemas, which keep every field; and writes whose object may
//! exist or be gone.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::wait::{Seen, until};

/// Far above what the API server takes, for machines that do something else as well.
const LIMIT: Duration = Duration::from_secs(120);

/// How long a request for a kind may take. While the API server begins to serve a kind, it may keep a request until its
/// own limit of a minute, and close the connection then.
const ANSWER: Duration = Duration::from_secs(5);

/// The resource of a kind whose plural is regular.
pub(crate) fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    let of_version = GroupVersionKind::gvk(group, version, kind);
    ApiResource::from_gvk_with_plural(&of_version, &format!("{kind}s").to_lowercase())
}

/// Defines kinds, unless they are defined, and waits until they are served. Their objects are stored in
/// the first of `versions`.
///
/// # Errors
/// If a definition is refused, or is not served within two minutes.
pub(crate) async fn define(
    client: &Client,
    group: &str,
    scope: &str,
    versions: &[&str],
    kinds: &[&str],
) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in kinds {
        let definition = serde_json::from_value(definition(group, scope, versions, kind))?;
        let defined = definitions.create(&PostParams::default(), &definition).await;
        unless_exists(defined).with_context(|| format!("cannot define {kind}"))?;
    }
    until(&format!("the resources of {group} to be served"), LIMIT, async || {
        for kind in kinds {
            let resource = resource(group, versions[0], kind);
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let one = ListParams::default().limit(1);
            match timeout(ANSWER, objects.list(&one)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Ok(Seen::NotYet(format!("{kind}: {error}"))),
                Err(_) => return Ok(Seen::NotYet(format!("{kind}: no answer in {ANSWER:?}"))),
            }
        }
        Ok(Seen::Done(()))
    })
    .await
}

fn definition(group: &str, scope: &str, versions: &[&str], kind: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": *name == versions[0],
            "schema": {"openAPIV3Schema": open}, "subresources": {"status": {}},
        })
    };
    let plural = resource(group, versions[0], kind).plural;
    json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase(),
            },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

/// The outcome of a write whose object may be gone meanwhile.
pub(crate) fn unless_gone<T>(written: kube::Result<T>) -> kube::Result<()> {
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        written => written.map(drop),
    }
}

/// The outcome of the creation of an object that may exist.
pub(crate) fn unless_exists<T>(created: kube::Result<T>) -> kube::Result<()> {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}
