//! Diagnoses the call of the API server about a test pod, which is created as users create pods (`dryRun`):
//! nothing stays.

use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, WARNING};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use super::facts::{Facts, Unread};
use stowplan_core::kubernetes::REQUIRED;
use stowplan_core::placement::record;
use stowplan_core::systems::check::installation::{Findings, Item};

/// The annotation of a test pod that no system places.
const UNKNOWN: (&str, &str) = ("stowplan.dev/check", "trial");

/// A test pod, and what became of it.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) namespace: String,
    /// True if the pod is one that a system always changes, and not one that the webhook warns about.
    pub(super) expects_patch: bool,
    pub(super) annotations: &'static [(&'static str, &'static str)],
    /// The pod as it would be created; or the API server's message, with the HTTP status code.
    pub(super) created: Result<Value, (u16, String)>,
    pub(super) warnings: Vec<String>,
}

impl Trial {
    /// Creates a test pod with annotations that a system always places or, without them, with one that the
    /// webhook warns about.
    ///
    /// # Errors
    /// The request could not be sent, or the answer not be read.
    pub(super) async fn create(
        client: &Client,
        namespace: &str,
        placed: Option<&'static [(&'static str, &'static str)]>,
    ) -> kube::Result<Self> {
        let (expects_patch, annotations) = (placed.is_some(), placed.unwrap_or(&[UNKNOWN]));
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(format_pod(annotations).to_string().into_bytes()));
        let answer = client.send(request.map_err(kube::Error::HttpError)?).await?;
        let warnings = answer.headers().get_all(WARNING).iter();
        let warnings = warnings.filter_map(|it| it.to_str().ok().map(str::to_owned)).collect();
        let (head, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let created = if head.status.is_success() {
            Ok(serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?)
        } else {
            let status: Status = serde_json::from_slice(&body).unwrap_or_default();
            let message = status.message.unwrap_or_else(|| head.status.to_string());
            Err((head.status.as_u16(), message))
        };
        let namespace = namespace.to_owned();
        Ok(Self { namespace, expects_patch, annotations, created, warnings })
    }

    /// Returns true if stowplan has placed the pod: it has the record or, where the policy wants none,
    /// keeps to other nodes than pods with the value of one of its annotations. Other webhooks may
    /// add affinities too.
    fn is_placed(&self, pod: &Value) -> bool {
        let terms = pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED].to_string();
        pod["metadata"]["annotations"].get(record::KEY).is_some()
            || self.annotations.iter().any(|(_, value)| terms.contains(&format!("\"{value}\"")))
    }

    fn is_warned(&self) -> bool {
        let mut keys = self.annotations.iter().map(|(key, _)| key);
        keys.any(|key| self.warnings.iter().any(|warning| warning.contains(key)))
    }
}

/// Diagnoses the test pod. If one was asked for, a missing result is a problem: `helm test` must not
/// pass then.
pub(super) fn check(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("trial-pod");
    let trial = match &facts.trial {
        None => {
            findings.unknown(
                "no test pod was created (dry run), because no namespace was named",
                "stowplan check --try-in default, or another namespace",
            );
            return findings.or_ok("");
        }
        Some(Err(unread)) => {
            let remedy = match unread {
                Unread::Forbidden(_) => "--try-in another namespace, or get this right",
                unread => unread.remedy(),
            };
            findings.problem(format!("no test pod was created: {unread}"), remedy);
            return findings.or_ok("");
        }
        Some(Ok(trial)) => trial,
    };
    let namespace = &trial.namespace;
    let is_own =
        |message: &str, words| message.contains(words) && message.contains(".stowplan.dev");
    match &trial.created {
        Ok(pod) if trial.is_placed(pod) => {
            return findings
                .or_ok(format!("a pod in namespace {namespace} gets its placement (dry run)"));
        }
        Ok(_) if trial.is_warned() && trial.expects_patch => findings.warning(
            format!("the webhook answers about a pod in namespace {namespace}, and does not place it"),
            "the warning and the policy (onInvalid) say why",
        ),
        // The webhook has answered. A policy may turn every system off, or refuse pods.
        _ if trial.is_warned() => {}
        Ok(_) => findings.problem(
            format!("a pod in namespace {namespace} is created without its placement: the webhook was not called"),
            "the lines webhook-configurations, service and certificate say why; or the namespace is excluded",
        ),
        Err((_, message)) if is_own(message, "denied the request") => {}
        Err((_, message)) if is_own(message, "failed calling webhook") => findings.problem(
            format!("the API server cannot call the webhook: {message}"),
            "the lines service and certificate say why",
        ),
        Err((_, message)) => findings.problem(
            format!("another rule of namespace {namespace} refuses the pod: {message}"),
            "--try-in another namespace (of helm test: the chart's value test.namespace)",
        ),
    }
    findings.or_ok(format!("the webhook answers about a pod in namespace {namespace} (dry run)"))
}

/// Builds the pod with these annotations. It meets the strictest of Kubernetes' Pod Security Standards, and
/// leaves the user to the namespace: OpenShift assigns one, and refuses others.
fn format_pod(annotations: &[(&str, &str)]) -> Value {
    let annotations: Map<String, Value> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "stowplan-check-", "annotations": annotations},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "trial", "image": "trial",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_meets_the_restricted_standard_and_names_no_user() {
        let pod = format_pod(&[("k", "v")]);
        assert_eq!(
            pod["metadata"],
            json!({"generateName": "stowplan-check-", "annotations": {"k": "v"}})
        );
        // OpenShift refuses a user that is not of the namespace's range.
        let context = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(pod["spec"]["securityContext"], context);
    }
}
