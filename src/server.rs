//! The server that the API server calls: an accept loop, limits, an orderly stop.
//!
//! HTTP/1.1 keep-alive over TLS is the production path (the API server offers nothing else to a
//! Service); HTTP/2 is served too. One connection's or request's trouble stays its own.

pub mod admin;
pub mod connection;
pub mod limits;
pub mod service;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use limits::Limits;
use service::Service;

/// How far a stop has come. Each token is cancelled after the one before it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// A stop was asked for: readiness fails, everything else goes on.
    pub asked: CancellationToken,
    /// No new work: answers carry `Connection: close`, and nothing is accepted any more.
    pub draining: CancellationToken,
    /// Idle connections are closed.
    pub closing: CancellationToken,
}

impl Stop {
    /// Walks through an orderly stop once it is asked for.
    ///
    /// The API server keeps calling over connections that it has open, for as long as it has not
    /// noticed that the endpoint left, and it does not repeat a call that broke off. So the server
    /// goes on as before for `delay`, then asks for each connection back with its next answer, and
    /// only then closes those that stayed idle.
    pub async fn run(&self, delay: Duration, last_answers: Duration) {
        self.asked.cancelled().await;
        info!(seconds = delay.as_secs(), "stopping: not ready from now on, still serving");
        tokio::time::sleep(delay).await;
        self.draining.cancel();
        info!("stopping: answers close their connections");
        tokio::time::sleep(last_answers).await;
        self.closing.cancel();
    }
}

/// Accepts connections until the stop, then waits for those that are open.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: Arc<Service>,
    limits: Limits,
    stop: Stop,
) {
    let acceptor = TlsAcceptor::from(tls);
    let slots = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.closing.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: those that are served must go on, and the
                // next attempt must not spin.
                warn!(%error, "cannot accept a connection");
                service.metrics().closed("accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            // Closed at once: a client that cannot be served should learn it before its timeout.
            service.metrics().closed("crowded");
            drop(stream);
            continue;
        };
        let connection = connection::run(stream, acceptor.clone(), Arc::clone(&service), limits, stop.clone());
        connections.spawn(async move {
            let ended = connection.await;
            drop(slot);
            if let Err(reason) = ended {
                tracing::debug!(%peer, reason, "connection ended");
            }
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.stop, connections.wait()).await.is_err() {
        warn!(connections = connections.len(), "stopped with connections open");
    }
}

/// A listener on `address`.
///
/// # Errors
/// The address cannot be bound, with the address in the message.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, std::io::Error> {
    TcpListener::bind(address)
        .await
        .map_err(|error| std::io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}
