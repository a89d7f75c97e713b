//! Probes and metrics, over plain HTTP on a separate port: they are served when the webhook's port
//! is overloaded.
//!
//! Any pod can connect here, so connections have the same deadlines as the webhook's, and idle ones
//! are closed for new ones in the same way: a probe always gets a slot. Answers contain no text of
//! users.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::limits::Limits;
use super::slots::Slots;
use super::{Stop, accept, connection};
use crate::cluster::Cluster;
use crate::telemetry::Metrics;
use crate::tls::CertificateStatus;

/// The most open connections. Probes and scrapes are few and short.
const CONNECTIONS: usize = 32;

/// The state that `/readyz` and `/metrics` report.
#[derive(Debug)]
pub(crate) struct Health {
    cluster: Arc<Cluster>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
    /// `None` in a process that serves no TLS.
    certificate: Option<ArcSwap<CertificateStatus>>,
}

impl Health {
    /// The health of a process that serves TLS: not ready until a certificate was read.
    #[must_use]
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        metrics: Arc<Metrics>,
        stopping: CancellationToken,
    ) -> Self {
        let certificate = Some(ArcSwap::from_pointee(CertificateStatus::unread()));
        Self { cluster, metrics, stopping, certificate }
    }

    /// The health of a process that serves no TLS and needs no certificate.
    #[must_use]
    pub(crate) fn without_certificate(
        cluster: Arc<Cluster>,
        metrics: Arc<Metrics>,
        stopping: CancellationToken,
    ) -> Self {
        Self { cluster, metrics, stopping, certificate: None }
    }

    /// Sets the state of the certificate.
    pub(crate) fn set_certificate(&self, status: CertificateStatus) {
        if let Some(certificate) = &self.certificate {
            certificate.store(Arc::new(status));
        }
    }

    /// Why the process is not ready; empty if it is.
    #[must_use]
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.stopping.is_cancelled() {
            problems.push("stopping".to_owned());
        }
        let certificate = self.certificate.as_ref();
        problems.extend(certificate.and_then(|certificate| certificate.load().problem.clone()));
        problems.extend(
            self.cluster.unsynced().iter().map(|kind| format!("{kind} are not synced yet")),
        );
        problems
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        let problems = self.problems();
        let (status, mut body) = match problems.as_slice() {
            [] => (StatusCode::OK, "ok\n".to_owned()),
            problems => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", problems.join("\n"))),
        };
        let certificate = self.certificate.as_ref().map(|certificate| certificate.load());
        if let Some(days) = certificate.and_then(|status| status.days_left(SystemTime::now())) {
            // Writing to a String does not fail.
            let _ = writeln!(body, "certificate: {days} days left");
        }
        text(status, body)
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "send a GET\n".to_owned());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => self.readiness(),
            "/metrics" => {
                let mut response = text(StatusCode::OK, self.metrics.to_text());
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                response
            }
            _ => {
                let paths = "no such path; there are /livez, /readyz and /metrics\n";
                text(StatusCode::NOT_FOUND, paths.to_owned())
            }
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Serves probes and metrics until the process has stopped.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>, stop: Stop) {
    let limits = Limits { linger: Duration::ZERO, ..Limits::DEFAULT };
    // Not drained before the process stops, so that probes and metrics show the progress of the
    // stop.
    let never = Stop::default();
    let slots = Slots::new(CONNECTIONS);
    let accepting = async {
        loop {
            let (stream, _) = accept(&listener, &slots, || {}).await;
            let slot = slots.acquire().await;
            let health = Arc::clone(&health);
            let (never, stopped) = (never.clone(), stop.stopped.clone());
            tokio::spawn(async move {
                let answer = move |request: Request<connection::TrackedBody>| {
                    let response = health.answer(request.method(), request.uri().path());
                    async move { response }
                };
                tokio::select! {
                    _ = connection::talk(stream, false, &slot.activity, limits, &never, answer) => {}
                    () = slot.close.cancelled() => {}
                    () = stopped.cancelled() => {}
                }
            });
        }
    };
    tokio::select! {
        biased;
        () = stop.stopped.cancelled() => {}
        () = accepting => {}
    }
}
