//! Answers without a decision: their status, reason and text.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::limits::MAX_BODY;
use super::service::{PATH, VALIDATE};
use crate::admission::ParseError;

/// Why a request is answered without a decision.
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
    /// Whether the connection can be used again. It cannot if a part of the body remains unread.
    pub(super) fn keeps_connection(&self) -> bool {
        !matches!(self, Self::TooLarge | Self::BodyTimeout | Self::BodyBroken)
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyBroken | Self::Parse(_) => StatusCode::BAD_REQUEST,
            Self::Busy(_) | Self::TooLate | Self::Unsynced => StatusCode::SERVICE_UNAVAILABLE,
            // Trying again within seconds does not help.
            Self::NoPolicy | Self::Bug => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::Method => "MethodNotAllowed",
            Self::ContentType => "UnsupportedMediaType",
            Self::TooLarge => "BodyTooLarge",
            Self::BodyTimeout => "BodyTimeout",
            Self::BodyBroken => "BodyBroken",
            Self::Parse(_) => "InvalidReview",
            Self::Busy(_) => "Overloaded",
            Self::TooLate => "TooLate",
            Self::Unsynced => "NotSynced",
            Self::NoPolicy => "NoPolicy",
            Self::Bug => "Panic",
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::NotFound => format!("no such path; send reviews to {PATH} or {VALIDATE}"),
            Self::Method => "send a POST".to_owned(),
            Self::ContentType => "send Content-Type: application/json".to_owned(),
            Self::TooLarge => format!("the body is larger than {MAX_BODY} bytes"),
            Self::BodyTimeout => "the body did not arrive in time".to_owned(),
            Self::BodyBroken => "the body ended too early".to_owned(),
            Self::Parse(error) => error.to_string(),
            Self::Busy(what) => format!("too many {what} at once; try again"),
            Self::TooLate => {
                "the request arrived too late to be answered before its timeout".to_owned()
            }
            Self::Unsynced => "the view of the cluster is not complete yet; try again".to_owned(),
            Self::NoPolicy => {
                "the policy is invalid or not known, and no other policy is in force".to_owned()
            }
            Self::Bug => "a bug in stowplan; see its log".to_owned(),
        }
    }

    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let mut response =
            Response::new(Full::new(Bytes::from(format!("stowplan: {}\n", self.message()))));
        *response.status_mut() = self.status();
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
