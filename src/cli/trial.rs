//! Creates a test pod (`dryRun`), as users create pods: nothing stays.

use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, WARNING};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

/// The answer of the API server.
#[derive(Debug)]
pub(super) struct Answer {
    /// The pod as it would be created; or the API server's message, with the HTTP status code.
    pub(super) created: Result<Value, (u16, String)>,
    pub(super) warnings: Vec<String>,
}

/// Creates a test pod with these annotations.
///
/// # Errors
/// The request could not be sent, or the answer not be read.
pub(super) async fn create_pod(
    client: &Client,
    namespace: &str,
    prefix: &str,
    annotations: &[(&str, &str)],
) -> Result<Answer, kube::Error> {
    let pod = format_pod(prefix, annotations);
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(pod.to_string().into_bytes()));
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
    Ok(Answer { created, warnings })
}

/// The pod, with these annotations. It meets the strictest of Kubernetes' Pod Security Standards, and
/// leaves the user to the namespace: OpenShift assigns one, and refuses others.
fn format_pod(prefix: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: Map<String, Value> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": prefix, "annotations": annotations},
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
        let pod = format_pod("a-", &[("k", "v")]);
        assert_eq!(pod["metadata"], json!({"generateName": "a-", "annotations": {"k": "v"}}));
        // OpenShift refuses a user that is not of the namespace's range.
        let context = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(pod["spec"]["securityContext"], context);
    }
}
