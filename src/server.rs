//! The server that the API server calls: the accept loop, limits and the orderly stop.
//!
//! HTTP/1.1 keep-alive over TLS is the production path (the API server offers nothing else to a
//! Service); HTTP/2 is served on request. A failing connection or request does not affect the others.
//!
//! Reading order: [`limits`], [`service`] (a request and its answer) with `failure` and `bodies`,
//! `connection` and `activity` (a connection and its deadlines), `slots` (which connections are
//! closed when too many are open), [`admin`] (probes and metrics, on a listener of their own).

mod activity;
pub(crate) mod admin;
mod bodies;
mod connection;
mod failure;
pub mod limits;
mod memory;
pub mod service;
mod slots;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::telemetry::Throttle;
use crate::tls::ServerTls;
use limits::Limits;
use service::Service;
use slots::Slots;

/// The phases of a stop. Each token is cancelled after the one before it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// A stop was requested: `/readyz` fails, and requests are served as before.
    pub requested: CancellationToken,
    /// Each answer closes its connection. New connections are still served: the API server that
    /// opens one has not noticed yet that this endpoint is being removed.
    pub draining: CancellationToken,
    /// No connection is accepted any more, and idle connections are closed.
    pub closing: CancellationToken,
    /// The last connection of the webhook has ended.
    pub stopped: CancellationToken,
}

impl Stop {
    /// Waits for the request to stop, then carries out the phases of the stop.
    ///
    /// The API server keeps calling over its open connections until it has noticed that the
    /// endpoint was removed, and it does not repeat a call that was cut off. So the server
    /// continues as before for `delay`, then closes each connection with its next answer, and
    /// closes idle connections only after another `last_answers`.
    pub async fn run(&self, delay: Duration, last_answers: Duration) {
        self.requested.cancelled().await;
        info!(
            seconds = delay.as_secs(),
            "stopping: /readyz fails from now on, requests are still served"
        );
        tokio::time::sleep(delay).await;
        self.draining.cancel();
        info!("stopping: each answer closes its connection");
        tokio::time::sleep(last_answers).await;
        self.closing.cancel();
    }
}

/// Accepts connections until the stop closes the listener, then waits for the open ones to end.
pub async fn serve(
    listener: TcpListener,
    tls: ServerTls,
    service: Arc<Service>,
    limits: Limits,
    stop: Stop,
) {
    let slots = Slots::new(limits.connections);
    let connections = TaskTracker::new();
    let accepting = async {
        loop {
            let (stream, peer) = accept(&listener, &slots, || {
                service.metrics().count_closed_connection("accept");
            })
            .await;
            let slot = slots.acquire(peer.ip()).await;
            let acceptor = tls.current().map(TlsAcceptor::from);
            let connection =
                connection::run(stream, acceptor, Arc::clone(&service), slot, limits, stop.clone());
            connections.spawn(async move {
                if let Err(reason) = connection.await {
                    debug!(%peer, reason, "connection ended");
                }
            });
        }
    };
    tokio::select! {
        biased;
        () = stop.closing.cancelled() => {}
        () = accepting => {}
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.stop, connections.wait()).await.is_err() {
        warn!(connections = connections.len(), "stopped although connections are still open");
    }
    stop.stopped.cancel();
}

/// Accepts the next connection. After a failure it tries again, with a pause so that it does not
/// spin; open connections are not affected.
async fn accept(
    listener: &TcpListener,
    slots: &Slots,
    on_failure: impl Fn(),
) -> (TcpStream, SocketAddr) {
    static THROTTLE: Throttle = Throttle::new();
    loop {
        let error = match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => error,
        };
        on_failure();
        if THROTTLE.try_pass() {
            warn!(%error, "cannot accept a connection");
        }
        match Errno::from_io_error(&error) {
            // The client has closed the connection already.
            Some(Errno::CONNABORTED | Errno::CONNRESET) => {}
            // No file descriptors left although slots are free: the process has other open files.
            Some(Errno::MFILE | Errno::NFILE) => {
                slots.close_some();
                tokio::time::sleep(PAUSE).await;
            }
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The pause between two attempts to accept a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens a listener on `address`.
///
/// # Errors
/// The address cannot be bound; the message names it.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, io::Error> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}
