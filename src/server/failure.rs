//! Answers without a decision: their status, reason and text.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONNECTION, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::limits::MAX_BODY;
use super::service::{PATH, VALIDATE, respond};
use stowplan_core::admission::ParseError;

/// The reason why a request is answered without a decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no such path; send reviews to {} or {}", PATH, VALIDATE)]
    NotFound,
    #[error("send a POST")]
    Method,
    #[error("send Content-Type: application/json")]
    ContentType,
    #[error("the body is larger than {} bytes", MAX_BODY)]
    TooLarge,
    #[error("the body did not arrive in time")]
    BodyTimeout,
    #[error("the body ended too early")]
    BodyBroken,
    #[error("{0}")]
    Parse(ParseError),
    #[error("too many {0} at once; try again")]
    Busy(&'static str),
    #[error("the request arrived too late to be answered before its timeout")]
    TooLate,
    #[error("the view of the cluster is not complete yet; try again")]
    Unsynced,
    #[error("the policy is invalid or not known, and no other policy is in force")]
    NoPolicy,
    #[error("a bug in stowplan; see its log")]
    Bug,
}

impl Failure {
    /// Returns true if the connection can be used again. It cannot if a part of the body remains unread.
    pub(super) fn keeps_connection(&self) -> bool {
        !matches!(self, Self::TooLarge | Self::BodyTimeout | Self::BodyBroken)
    }

    /// Returns the status of the answer, and a stable word.
    pub(super) fn describe(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "NotFound"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "BodyTooLarge"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "BodyTimeout"),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "BodyBroken"),
            Self::Parse(_) => (StatusCode::BAD_REQUEST, "InvalidReview"),
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "Overloaded"),
            Self::TooLate => (StatusCode::SERVICE_UNAVAILABLE, "TooLate"),
            Self::Unsynced => (StatusCode::SERVICE_UNAVAILABLE, "NotSynced"),
            // Trying again within seconds does not help against these two.
            Self::NoPolicy => (StatusCode::INTERNAL_SERVER_ERROR, "NoPolicy"),
            Self::Bug => (StatusCode::INTERNAL_SERVER_ERROR, "Panic"),
        }
    }

    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let (status, _) = self.describe();
        let text = format!("stowplan: {self}\n");
        let mut response = respond(status, "text/plain; charset=utf-8", text);
        let headers = response.headers_mut();
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
