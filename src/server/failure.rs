//! Answers without a decision: their status, reason and text.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::limits::MAX_BODY;
use super::service::{PATH, VALIDATE};
use stowplan_core::admission::ParseError;

/// The reason why a request is answered without a decision.
#[derive(Debug)]
pub(super) enum Failure {
    NotFound,
    Method,
    ContentType,
    TooLarge,
    BodyTimeout,
    BodyBroken,
    Parse(ParseError),
    Busy(&'static str),
    TooLate,
    Unsynced,
    NoPolicy,
    Bug,
}

impl Failure {
    /// Returns true if the connection can be used again. It cannot if a part of the body remains unread.
    pub(super) fn keeps_connection(&self) -> bool {
        !matches!(self, Self::TooLarge | Self::BodyTimeout | Self::BodyBroken)
    }

    /// Describes the failure: the status of the answer, a stable word, and the text.
    pub(super) fn describe(&self) -> (StatusCode, &'static str, String) {
        let (status, reason, text) = match self {
            Self::NotFound => {
                let text = format!("no such path; send reviews to {PATH} or {VALIDATE}");
                return (StatusCode::NOT_FOUND, "NotFound", text);
            }
            Self::TooLarge => {
                let text = format!("the body is larger than {MAX_BODY} bytes");
                return (StatusCode::PAYLOAD_TOO_LARGE, "BodyTooLarge", text);
            }
            Self::Parse(error) => {
                return (StatusCode::BAD_REQUEST, "InvalidReview", error.to_string());
            }
            Self::Busy(what) => {
                let text = format!("too many {what} at once; try again");
                return (StatusCode::SERVICE_UNAVAILABLE, "Overloaded", text);
            }
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "send a POST"),
            Self::ContentType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UnsupportedMediaType",
                "send Content-Type: application/json",
            ),
            Self::BodyTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "BodyTimeout", "the body did not arrive in time")
            }
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "BodyBroken", "the body ended too early"),
            Self::TooLate => (
                StatusCode::SERVICE_UNAVAILABLE,
                "TooLate",
                "the request arrived too late to be answered before its timeout",
            ),
            Self::Unsynced => (
                StatusCode::SERVICE_UNAVAILABLE,
                "NotSynced",
                "the view of the cluster is not complete yet; try again",
            ),
            // Trying again within seconds does not help against these two.
            Self::NoPolicy => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "NoPolicy",
                "the policy is invalid or not known, and no other policy is in force",
            ),
            Self::Bug => {
                (StatusCode::INTERNAL_SERVER_ERROR, "Panic", "a bug in stowplan; see its log")
            }
        };
        (status, reason, text.to_owned())
    }

    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let (status, _, message) = self.describe();
        let mut response = Response::new(Full::new(Bytes::from(format!("stowplan: {message}\n"))));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        match self {
            Self::Method => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            // An integer: the API server ignores a date here.
            Self::Busy(_) | Self::TooLate | Self::Unsynced => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        if !self.keeps_connection() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
