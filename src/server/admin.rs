//! Probes, metrics and the state of the process, over plain HTTP on a separate port: they are served
//! when the webhook's port is overloaded.
//!
//! Any pod can connect here, so connections have the same deadlines as the webhook's, and idle ones
//! are closed for new ones in the same way: a probe always gets a slot. Answers contain no text of
//! users.

pub(crate) mod status;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::limits::Limits;
use super::service::respond;
use super::slots::Slots;
use super::{Stop, accept, connection};
use crate::cluster::Cluster;
use crate::telemetry::{KindLabels, Metrics};
use crate::tls::CertificateStatus;
use status::{PolicyStatus, ServedCertificate, Status};

/// The most open connections. Probes and scrapes are few and short.
const CONNECTIONS: usize = 32;

/// The state that `/readyz` and `/metrics` report.
#[derive(Debug)]
pub(crate) struct Health {
    cluster: Arc<Cluster>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
    /// `None` in a controller, which serves no TLS.
    certificate: Option<ArcSwap<CertificateStatus>>,
    /// The process is not ready while a watch is older. `None`: at any age.
    max_age: Option<Duration>,
    policy: ArcSwap<PolicyStatus>,
    /// The unique name of the process.
    identity: Option<String>,
}

impl Health {
    /// The health of a process that serves TLS: not ready until a certificate and a policy were
    /// read.
    #[must_use]
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        metrics: Arc<Metrics>,
        stopping: CancellationToken,
    ) -> Self {
        let certificate = Some(ArcSwap::from_pointee(CertificateStatus::unread()));
        Self {
            cluster,
            metrics,
            stopping,
            certificate,
            max_age: None,
            policy: ArcSwap::default(),
            identity: None,
        }
    }

    /// With the unique name of the process, which `/status` shows.
    #[must_use]
    pub(crate) fn with_identity(self, identity: Option<String>) -> Self {
        Self { identity, ..self }
    }

    /// The health of a controller, which serves no TLS and needs no certificate. It is not ready
    /// until a policy was read, and while a watch is older than `max_age`.
    #[must_use]
    pub(crate) fn without_certificate(
        cluster: Arc<Cluster>,
        metrics: Arc<Metrics>,
        stopping: CancellationToken,
        max_age: Duration,
    ) -> Self {
        let other = Self::new(cluster, metrics, stopping);
        Self { certificate: None, max_age: Some(max_age), ..other }
    }

    /// Sets the state of the policy.
    pub(crate) fn set_policy(&self, state: PolicyStatus) {
        self.policy.store(Arc::new(state));
    }

    /// Sets the state of the certificate.
    pub(crate) fn set_certificate(&self, status: CertificateStatus) {
        if let Some(certificate) = &self.certificate {
            certificate.store(Arc::new(status));
        }
    }

    /// Returns the reasons why the process is not ready; empty if it is.
    #[must_use]
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.stopping.is_cancelled() {
            problems.push("stopping".to_owned());
        }
        let policy = self.policy.load();
        if policy.digest.is_none() {
            let problem = policy.problem.as_deref().unwrap_or("none was read yet");
            problems.push(format!("no policy is in force: {problem}"));
        }
        let certificate = self.certificate.as_ref();
        problems.extend(certificate.and_then(|certificate| certificate.load().problem.clone()));
        problems.extend(
            self.cluster.unsynced().iter().map(|kind| format!("{kind} are not synced yet")),
        );
        let ages = self.cluster.ages().into_iter();
        let too_old = ages.filter(|(_, age)| self.max_age.is_some_and(|max_age| *age > max_age));
        problems.extend(too_old.map(|(kind, age)| {
            format!("{kind}: the API server was not heard for {} s", age.as_secs())
        }));
        problems
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        let problems = self.problems();
        let (status, mut body) = match problems.as_slice() {
            [] => (StatusCode::OK, "ok\n".to_owned()),
            problems => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", problems.join("\n"))),
        };
        let policy = self.policy.load();
        if let Some(digest) = &policy.digest {
            body.push_str(&format!("policy: {digest}\n"));
            if let Some(problem) = &policy.problem {
                body.push_str(&format!("a newer policy is not in force: {problem}\n"));
            }
        }
        let certificate = self.certificate.as_ref().map(|certificate| certificate.load());
        if let Some(days) = certificate.and_then(|status| status.days_left(SystemTime::now())) {
            body.push_str(&format!("certificate: {days} days left\n"));
        }
        text(status, body)
    }

    /// The state of the process, for `/status`.
    #[must_use]
    pub(crate) fn status(&self) -> Status {
        let certificate = self.certificate.as_ref().map(|certificate| {
            let of = certificate.load();
            let not_after = of.not_after.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            ServedCertificate {
                chain: of.chain.to_string(),
                not_after: not_after.map(|at| at.as_secs()),
                problem: of.problem.clone(),
            }
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            identity: self.identity.clone(),
            policy: PolicyStatus::clone(&self.policy.load()),
            certificate,
            leads: self.certificate.is_none().then(|| self.metrics.controller_leader.get() == 1),
            problems: self.problems(),
        }
    }

    /// Answers a request of the admin port.
    pub(crate) fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "send a GET\n".to_owned());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => self.readiness(),
            "/status" => {
                let body = serde_json::to_string(&self.status());
                respond(StatusCode::OK, "application/json", body.expect("a status is JSON"))
            }
            "/metrics" => {
                for (kind, age) in self.cluster.ages() {
                    let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
                    self.metrics.watch_age.get_or_create(&KindLabels { kind }).set(seconds);
                }
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                respond(StatusCode::OK, kind, self.metrics.to_text())
            }
            _ => {
                let paths = "no such path; there are /livez, /readyz, /metrics and /status\n";
                text(StatusCode::NOT_FOUND, paths.to_owned())
            }
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body)
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
            let (stream, peer) = accept(&listener, &slots, || {}).await;
            let slot = slots.acquire(peer.ip()).await;
            let health = Arc::clone(&health);
            let (never, stopped) = (never.clone(), stop.stopped.clone());
            tokio::spawn(async move {
                let answer = move |request: Request<Incoming>| {
                    let response = health.answer(request.method(), request.uri().path());
                    async move { response }
                };
                tokio::select! {
                    _ = connection::talk(stream, false, &slot.client, limits, &never, answer) => {}
                    () = slot.client.close.cancelled() => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use stowplan_core::systems::View;

    fn cluster() -> Arc<Cluster> {
        Arc::new(Cluster::fixed(View::default(), Arc::default()))
    }

    #[test]
    fn the_status_has_what_check_compares() {
        let read = |health: &Health| -> Status {
            serde_json::from_str(&serde_json::to_string(&health.status()).unwrap()).unwrap()
        };
        let stopping = CancellationToken::new();
        let identity = Some("webhook-1".to_owned());
        let health = Health::new(cluster(), Arc::default(), stopping.clone());
        let health = health.with_identity(identity.clone());
        let problem = Some("onInvald: there is no such key".to_owned());
        let policy = PolicyStatus { digest: Some("e3b0".to_owned()), problem };
        health.set_policy(policy.clone());
        let problem = Some("no certificate was read yet".to_owned());
        let certificate = Some(ServedCertificate { problem, ..ServedCertificate::default() });
        let (version, problems) = (env!("CARGO_PKG_VERSION").to_owned(), health.problems());
        let expected = Status { version, identity, policy, certificate, leads: None, problems };
        assert_eq!(read(&health), expected);
        health.set_certificate(CertificateStatus {
            problem: None,
            not_after: Some(UNIX_EPOCH + Duration::from_secs(7)),
            chain: "PEM".into(),
        });
        let certificate = read(&health).certificate.unwrap();
        assert_eq!((certificate.chain.as_str(), certificate.not_after), ("PEM", Some(7)));

        let metrics = Arc::new(Metrics::new());
        let age = Duration::from_secs(60);
        let health = Health::without_certificate(cluster(), Arc::clone(&metrics), stopping, age);
        assert_eq!((read(&health).leads, read(&health).certificate), (Some(false), None));
        metrics.controller_leader.set(1);
        assert_eq!(read(&health).leads, Some(true));
        assert_eq!(health.answer(&Method::GET, "/status").status(), 200);
    }
}
