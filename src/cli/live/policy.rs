//! The policy of a cluster: the chart's ConfigMap, which the webhook's configuration names.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::lists::Lists;
use crate::cli::policy_source::find_text;
use crate::cli::requests::list_pages;
use stowplan_core::systems::policy::Policy;

/// The annotation of the webhook's configuration that names the ConfigMap: `NAMESPACE/NAME`.
pub(in crate::cli) const ANNOTATION: &str = "stowplan.dev/policy";

/// The end of the names of stowplan's webhooks.
pub(in crate::cli) const WEBHOOKS: &str = ".stowplan.dev";

/// The consequence if the policy cannot be read.
const ASSUMED: &str = "the default policy is assumed, with no further excluded namespaces (--policy gives another one)";

/// The policy of the cluster, or the default one. A warning says why it cannot be read.
///
/// # Errors
/// The cluster does not answer.
pub(in crate::cli) async fn read(lists: &mut Lists) -> anyhow::Result<Policy> {
    let client = lists.connection.client.clone();
    let webhooks = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let listed = list_pages(&webhooks, ListParams::default()).await;
    let listed = lists.unless_forbidden(listed, "mutatingwebhookconfigurations", ASSUMED)?;
    let is_own = |of: &MutatingWebhookConfiguration| {
        of.webhooks.iter().flatten().any(|webhook| webhook.name.ends_with(WEBHOOKS))
    };
    // Without a webhook nothing has a policy.
    let Some(own) = listed.into_iter().flatten().find(is_own) else { return Ok(Policy::default()) };
    let named = own.annotations().get(ANNOTATION).and_then(|value| value.split_once('/'));
    let found = match named {
        None => Err(format!(
            "MutatingWebhookConfiguration {} does not name the policy (annotation {ANNOTATION}; \
             upgrade the chart)",
            own.name_any()
        )),
        Some((namespace, name)) => {
            match Api::<ConfigMap>::namespaced(client, namespace).get(name).await {
                Ok(map) => {
                    read_map(&map).map_err(|of| format!("ConfigMap {namespace}/{name} {of}"))
                }
                Err(kube::Error::Api(status)) => {
                    Err(format!("the policy cannot be read: {}", status.message))
                }
                Err(error) => return Err(lists.failed("configmaps", &error)),
            }
        }
    };
    Ok(found.unwrap_or_else(|problem| {
        lists.warn(format!("{problem}: {ASSUMED}"));
        Policy::default()
    }))
}

/// Reads the policy in a ConfigMap.
///
/// # Errors
/// Why it has none, to follow the name of the ConfigMap.
fn read_map(map: &ConfigMap) -> Result<Policy, String> {
    Policy::from_yaml(find_text(map)?).map_err(|problem| {
        format!("has an invalid policy, and the webhook uses an earlier one: {problem}")
    })
}
