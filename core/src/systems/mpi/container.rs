//! The container of a pod that runs `mpirun` or the ssh server.

use super::keys;
use super::request::Request;
use crate::placement::reason::{Finding, Reason, quoted};

/// The containers that service meshes add, by the names in their sources. Some meshes put theirs first, so
/// that it runs before the others.
const PROXIES: &[(&str, &str)] = &[
    // istio: `ProxyContainerName` in pkg/kube/inject.
    ("istio-proxy", "Istio"),
    // linkerd2: `ProxyContainerName` in pkg/k8s/labels.go.
    ("linkerd-proxy", "Linkerd"),
    // kuma: `KumaSidecarContainerName` in pkg/plugins/runtime/k8s/util.
    ("kuma-sidecar", "Kuma"),
    // consul-k8s: `sidecarContainer` in control-plane/connect-inject.
    ("consul-dataplane", "Consul"),
    // The injectors of aws-app-mesh-controller-for-k8s and openservicemesh/osm.
    ("envoy", "App Mesh or Open Service Mesh"),
];

/// Returns the index of the container that the changes are for: the one that the author names, else the
/// one that kubectl takes, which meshes set to the first of the author's, else the first.
///
/// # Errors
/// If there is no container of the author's name, or the choice fell on the proxy of a mesh.
pub(super) fn choose<'n>(
    request: &Request,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<usize, Finding> {
    let names: Vec<&str> = names.into_iter().collect();
    let others: Vec<String> =
        names.iter().filter(|name| proxy(name).is_none()).map(|name| quoted(name)).collect();
    let refuse = |problem: String| {
        let remedy = match &*others {
            [] => "add the container that runs mpirun or the ssh server".to_owned(),
            _ => format!(
                "write the name of the container that runs mpirun or the ssh server: {}",
                others.join(", ")
            ),
        };
        Finding::new(Reason::InvalidMpi, keys::CONTAINER, problem, remedy)
    };
    let position = |of: &str| names.iter().position(|name| *name == of);
    if let Some(name) = &request.container {
        let missing = || refuse(format!("the pod has no container {}", quoted(name)));
        return position(name).ok_or_else(missing);
    }
    let of_kubectl = request.default_container.as_deref().and_then(position);
    let index = of_kubectl.unwrap_or_default();
    let name = names.get(index).ok_or_else(|| refuse("the pod has no container".to_owned()))?;
    match proxy(name) {
        None => Ok(index),
        Some(mesh) => Err(refuse(format!(
            "is missing, and container {} is the proxy of a service mesh ({mesh})",
            quoted(name)
        ))),
    }
}

/// Returns the mesh whose proxy has this name.
fn proxy(name: &str) -> Option<&'static str> {
    PROXIES.iter().find(|(proxy, _)| *proxy == name).map(|(_, mesh)| *mesh)
}
