//! Builds the HTTP requests that list and write objects.

use hyper::Request as HttpRequest;
use kube::Resource as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, Request};

use super::content;
use crate::controller::MANAGER;
use stowplan_core::systems::plan::operation::replace_status;
use stowplan_core::systems::plan::{Creation, Target, Write};
use stowplan_core::view::resource::Resource;

/// Builds the request for a write.
///
/// # Errors
/// If the write is [`Write::None`], or a part of the request is invalid.
pub(super) fn request(target: &Target, write: &Write) -> Result<HttpRequest<Vec<u8>>, String> {
    let Target { resource, namespace, name, uid } = target;
    let request = Request::new(path(resource, namespace));
    let manager = Some(MANAGER.to_owned());
    let patching = PatchParams { field_manager: manager.clone(), ..PatchParams::default() };
    let patch = |operations| Patch::<()>::Json(json_patch::Patch(operations));
    let request = match write {
        Write::Patch(operations) => request.patch(name, &patching, &patch(operations.clone())),
        Write::Part(subresource, operations) => {
            request.patch_subresource(subresource, name, &patching, &patch(operations.clone()))
        }
        Write::Status { resource_version, status } => {
            let operations = replace_status(uid, resource_version, status);
            request.patch_subresource("status", name, &patching, &patch(operations))
        }
        Write::Create(object) => {
            let parameters = PostParams { field_manager: manager, ..PostParams::default() };
            request.create(&parameters, object.to_string().into_bytes())
        }
        Write::Delete { grace, version } => {
            let preconditions = Preconditions {
                uid: Some(uid.to_string()),
                resource_version: version.as_deref().map(str::to_owned),
            };
            let parameters = DeleteParams { grace_period_seconds: *grace, ..Default::default() };
            request.delete(name, &parameters.preconditions(preconditions))
        }
        Write::None => return Err("there is nothing to write".to_owned()),
    };
    request.map_err(|error| error.to_string())
}

/// Builds the request for an object on which a write to `target` depends.
///
/// # Errors
/// If its content cannot be generated, or a part of the request is invalid.
pub(super) fn create_first(
    target: &Target,
    creation: &Creation,
) -> Result<HttpRequest<Vec<u8>>, String> {
    let mut object = creation.object.clone();
    if let Some(content) = creation.content {
        content::fill(&mut object, content)?;
    }
    let parameters =
        PostParams { field_manager: Some(MANAGER.to_owned()), dry_run: creation.is_trial };
    let request = Request::new(path(&creation.resource, &target.namespace));
    let request = request.create(&parameters, object.to_string().into_bytes());
    request.map_err(|error| error.to_string())
}

/// Builds the request that lists a resource in all namespaces, consistently from etcd and not from
/// the API server's cache.
///
/// # Errors
/// If a part of the request is invalid.
pub(super) fn list(resource: &Resource) -> Result<HttpRequest<Vec<u8>>, String> {
    let request = Request::new(path(resource, "")).list(&ListParams::default());
    request.map_err(|error| error.to_string())
}

/// The path of a resource's objects in a namespace; an empty namespace means all namespaces.
fn path(resource: &Resource, namespace: &str) -> String {
    let namespace = Some(namespace).filter(|name| resource.namespaced && !name.is_empty());
    DynamicObject::url_path(&resource.api_resource(), namespace)
}
