//! The policy of a cluster: the chart's ConfigMap, which the webhook's configuration names.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::lists::{Lists, Unlisted};
use crate::cli::policy_source::find_text;
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
pub(super) async fn read(lists: &mut Lists) -> Result<Policy, Unlisted> {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(lists.client.clone());
    let (plural, all) = ("mutatingwebhookconfigurations", ListParams::default());
    let Some(listed) = lists.list_known(&webhooks, plural, all, ASSUMED).await? else {
        return Ok(Policy::default());
    };
    let is_own = |of: &MutatingWebhookConfiguration| {
        of.webhooks.iter().flatten().any(|webhook| webhook.name.ends_with(WEBHOOKS))
    };
    // Without a webhook nothing has a policy.
    let Some(own) = listed.into_iter().find(is_own) else { return Ok(Policy::default()) };
    let named = own.annotations().get(ANNOTATION).and_then(|value| value.split_once('/'));
    let Some((namespace, name)) = named else {
        lists.warn(format!(
            "MutatingWebhookConfiguration {} does not name the policy (annotation {ANNOTATION}; \
             upgrade the chart): {ASSUMED}",
            own.name_any()
        ));
        return Ok(Policy::default());
    };
    let maps = Api::<ConfigMap>::namespaced(lists.client.clone(), namespace);
    let map = match maps.get(name).await {
        Ok(map) => map,
        Err(kube::Error::Api(status)) => {
            lists.warn(format!("the policy cannot be read: {}: {ASSUMED}", status.message));
            return Ok(Policy::default());
        }
        Err(error) => return Err(lists.failed("configmaps", error)),
    };
    let text = match find_text(&map) {
        Ok(text) => text,
        Err(problem) => {
            lists.warn(format!("ConfigMap {namespace}/{name} {problem}: {ASSUMED}"));
            return Ok(Policy::default());
        }
    };
    Policy::from_yaml(text).or_else(|problem| {
        lists.warn(format!(
            "ConfigMap {namespace}/{name} has an invalid policy, and the webhook uses an earlier one: \
             {problem}: {ASSUMED}"
        ));
        Ok(Policy::default())
    })
}
