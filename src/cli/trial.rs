//! Creates a pod for trial (`dryRun`), as users create pods: nothing stays.

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

/// Creates a pod with these annotations for trial. The pod meets the strictest of Kubernetes' Pod
/// Security Standards.
///
/// # Errors
/// The request could not be sent, or the answer not be read.
pub(super) async fn create_pod(
    client: &Client,
    namespace: &str,
    prefix: &str,
    annotations: &[(&str, &str)],
) -> Result<Answer, kube::Error> {
    let annotations: Map<String, Value> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": prefix, "annotations": annotations},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "trial", "image": "trial",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(pod.to_string().into_bytes()));
    let answer = client.send(request.map_err(kube::Error::HttpError)?).await?;
    let warnings = answer.headers().get_all(WARNING).iter();
    let warnings = warnings.filter_map(|it| it.to_str().ok().map(str::to_owned)).collect();
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    let created = if head.status.is_success() {
        serde_json::from_slice(&body).map_err(kube::Error::SerdeError)
    } else {
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let message = status.message.unwrap_or_else(|| head.status.to_string());
        return Ok(Answer { created: Err((head.status.as_u16(), message)), warnings });
    };
    Ok(Answer { created: Ok(created?), warnings })
}
