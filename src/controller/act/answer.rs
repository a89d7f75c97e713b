//! The API server's answers to writes, and the outcome of each write.

use std::time::Duration;

use hyper::StatusCode;
use kube::core::Status;

use stowplan_core::systems::plan::Write;

/// The longest `Retry-After` that is respected.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The cause that the API server gives for refusing to create an object in a namespace that is being deleted.
const ENDING: &str = "NamespaceTerminating";

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

/// The outcome of an action.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// The object was written.
    Done,
    /// The write is not needed and was not sent: a fresh list contradicts every operation, or the
    /// object to be created before it exists already.
    Kept,
    /// The object was deleted.
    NotFound,
    /// The object has changed since the plan, or its namespace is being deleted.
    Conflict,
    /// The write is forbidden or invalid; the API server's message.
    Refused(String),
    /// An object with that name exists already; the API server's message.
    Taken(String),
    /// The API server accepts no writes for this time.
    Throttled(Duration),
    /// It is unknown whether the write was carried out; the error.
    Unsure(String),
    /// The write was not sent: the lease is not held, or the API server is busy.
    Unsent,
}

impl Outcome {
    /// The stable word in logs and metrics.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Kept => "kept",
            Self::NotFound => "gone",
            Self::Conflict => "conflict",
            Self::Refused(_) | Self::Taken(_) => "refused",
            Self::Throttled(_) => "throttled",
            Self::Unsure(_) => "unsure",
            Self::Unsent => "unsent",
        }
    }
}

/// Derives the outcome of a write from the API server's answer.
pub(super) fn judge(write: &Write, answer: &Answer) -> Outcome {
    if answer.status.is_success() {
        return Outcome::Done;
    }
    let status = serde_json::from_slice::<Status>(&answer.body).ok();
    let problem = || {
        let message = status.as_ref().map(|status| status.message.clone());
        let message = message.filter(|message| !message.is_empty());
        message.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).trim().to_owned())
    };
    let details = status.as_ref().and_then(|status| status.details.as_ref());
    match answer.status {
        // The namespace was deleted, or the API server does not serve the kind.
        StatusCode::NOT_FOUND if matches!(write, Write::Create(_) | Write::None) => {
            Outcome::Refused(problem())
        }
        StatusCode::NOT_FOUND => Outcome::NotFound,
        // A conflict on a quota also answers 409, but without this reason.
        StatusCode::CONFLICT
            if matches!(write, Write::Create(_))
                && status.as_ref().is_some_and(|status| status.reason == "AlreadyExists") =>
        {
            Outcome::Taken(problem())
        }
        StatusCode::CONFLICT => Outcome::Conflict,
        // The status of a failed `test` lists no causes; that of an invalid field does.
        StatusCode::UNPROCESSABLE_ENTITY
            if matches!(write, Write::Patch(_) | Write::Part(..) | Write::Status { .. })
                && details.is_none_or(|details| details.causes.is_empty()) =>
        {
            Outcome::Conflict
        }
        // There is nothing to fix: the plan changes once the watches show that the objects are
        // deleted.
        StatusCode::FORBIDDEN
            if details.is_some_and(|of| of.causes.iter().any(|of| of.reason == ENDING)) =>
        {
            Outcome::Conflict
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = details.map(|details| u64::from(details.retry_after_seconds));
            let in_body = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
            let wait = answer.retry_after.or(in_body).unwrap_or(Duration::from_secs(1));
            Outcome::Throttled(wait.min(LONGEST_WAIT))
        }
        StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT => Outcome::Unsure(problem()),
        status if status.is_client_error() => Outcome::Refused(problem()),
        status => Outcome::Unsure(format!("{status}: {}", problem())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(code: u16, body: &str) -> Answer {
        let status = StatusCode::from_u16(code).unwrap();
        Answer { status, retry_after: None, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn each_answer_has_its_outcome() {
        // Recorded from Kubernetes 1.36.
        let failed_test = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server rejected our request due to an error in our request","reason":"Invalid","details":{},"code":422}"#;
        let invalid = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Node \"n1\" is invalid","reason":"Invalid","details":{"name":"n1","kind":"Node","causes":[{"reason":"FieldValueInvalid","message":"Invalid value","field":"metadata.labels"}]},"code":422}"#;
        let taken = r#"{"kind":"Status","status":"Failure","message":"there is one","reason":"AlreadyExists","code":409}"#;
        let counted = r#"{"kind":"Status","status":"Failure","message":"the object has been modified","reason":"Conflict","code":409}"#;
        let busy = r#"{"kind":"Status","status":"Failure","message":"later","reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}"#;
        let ending = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"c\" is forbidden: unable to create new content in namespace ns because it is being terminated","reason":"Forbidden","details":{"name":"c","kind":"configmaps","causes":[{"reason":"NamespaceTerminating","message":"namespace ns is being terminated","field":"metadata.namespace"}]},"code":403}"#;
        let refused = |text: &str| Outcome::Refused(text.to_owned());
        let unsure = |text: &str| Outcome::Unsure(text.to_owned());
        let patch = Write::Patch(Vec::new());
        let delete = Write::Delete { grace: None, version: None };
        let status = Write::Status { resource_version: "1".into(), status: json!({}) };
        let create = Write::Create(json!({}));
        let rejected = "the server rejected our request due to an error in our request";
        let throttled = |seconds| Outcome::Throttled(Duration::from_secs(seconds));
        let after = |seconds, body| {
            let retry_after = Some(Duration::from_secs(seconds));
            Answer { retry_after, ..answer(429, body) }
        };
        for (write, answer, outcome) in [
            (&patch, answer(200, "{}"), Outcome::Done),
            (&patch, answer(404, ""), Outcome::NotFound),
            (&delete, answer(404, ""), Outcome::NotFound),
            (&create, answer(404, "no such namespace"), refused("no such namespace")),
            (&patch, answer(409, ""), Outcome::Conflict),
            (&create, answer(409, taken), Outcome::Taken("there is one".to_owned())),
            (&create, answer(409, counted), Outcome::Conflict),
            (&create, answer(409, ""), Outcome::Conflict),
            (&delete, answer(409, ""), Outcome::Conflict),
            (&patch, answer(422, failed_test), Outcome::Conflict),
            (&status, answer(422, failed_test), Outcome::Conflict),
            (&patch, answer(422, invalid), refused("Node \"n1\" is invalid")),
            (&create, answer(422, failed_test), refused(rejected)),
            (&patch, answer(403, "no\n"), refused("no")),
            (&create, answer(403, ending), Outcome::Conflict),
            (&patch, answer(401, "who?"), unsure("who?")),
            (&patch, answer(429, "Too many requests"), throttled(1)),
            (&patch, answer(429, busy), throttled(7)),
            (&patch, after(3, busy), throttled(3)),
            (&patch, after(9999, ""), Outcome::Throttled(LONGEST_WAIT)),
            (&patch, answer(500, "oh"), unsure("500 Internal Server Error: oh")),
            (&patch, answer(504, failed_test), unsure(&format!("504 Gateway Timeout: {rejected}"))),
            (&patch, answer(302, ""), unsure("302 Found: ")),
        ] {
            assert_eq!(judge(write, &answer), outcome, "{write:?} {}", answer.status);
        }
    }
}
