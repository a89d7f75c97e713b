//! Probes and metrics, on plain HTTP and a port of their own: they answer when the other is full.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::telemetry::Metrics;

/// Connections at once. Probes and scrapes are few and short.
const CONNECTIONS: usize = 64;

/// What a probe is told.
#[derive(Debug)]
pub struct Health {
    cluster: Arc<Cluster>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
    /// Why the certificate cannot serve; `None` when it can.
    certificate: ArcSwap<Option<String>>,
}

impl Health {
    /// Not ready until a certificate was read.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>, metrics: Arc<Metrics>, stopping: CancellationToken) -> Self {
        let certificate = ArcSwap::from_pointee(Some("no certificate was read yet".to_owned()));
        Self { cluster, metrics, stopping, certificate }
    }

    /// Tells whether the certificate can serve.
    pub fn set_certificate(&self, problem: Option<String>) {
        self.certificate.store(Arc::new(problem));
    }

    /// Why requests should not come here; empty when they should.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.stopping.is_cancelled() {
            problems.push("stopping".to_owned());
        }
        problems.extend(self.certificate.load().as_ref().clone());
        problems.extend(self.cluster.unsynced().iter().map(|kind| format!("{kind} are not synced yet")));
        problems
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "send a GET\n".to_owned());
        }
        match request.uri().path() {
            "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => match self.problems().as_slice() {
                [] => text(StatusCode::OK, "ok\n".to_owned()),
                problems => text(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", problems.join("\n"))),
            },
            "/metrics" => {
                let mut response = text(StatusCode::OK, self.metrics.to_text());
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                response
            }
            _ => text(StatusCode::NOT_FOUND, "no such path; there are /livez, /readyz and /metrics\n".to_owned()),
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

/// Serves probes until `closing`.
pub async fn serve(listener: TcpListener, health: Arc<Health>, closing: CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let health = Arc::clone(&health);
        let closing = closing.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = health.answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                // Covers the time between requests too, which is right for probes.
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                () = closing.cancelled() => {}
            }
            drop(slot);
        });
    }
}
