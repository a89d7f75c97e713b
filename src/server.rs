//! The server that the API server calls: an accept loop, limits, an orderly stop.
//!
//! HTTP/1.1 keep-alive over TLS is the production path (the API server offers nothing else to a
//! Service); HTTP/2 is served too. One connection's or request's trouble stays its own.
//!
//! Reading order: [`limits`] (what a client may take), [`service`] (a request and its answer),
//! `connection` and `pace` (a connection and its deadlines), `room` (who has to leave when it is
//! full), [`admin`] (probes and metrics, on a listener of their own).

pub mod admin;
mod connection;
pub mod limits;
mod pace;
mod room;
pub mod service;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::telemetry::Throttle;
use limits::Limits;
use room::Room;
use service::Service;

/// How far a stop has come. Each token is cancelled after the one before it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// A stop was asked for: readiness fails, everything else goes on.
    pub asked: CancellationToken,
    /// Each answer closes its connection. New connections are still served: an API server that
    /// makes one has not seen yet that we leave.
    pub draining: CancellationToken,
    /// Nothing is accepted any more, and idle connections are closed.
    pub closing: CancellationToken,
    /// The last connection of the webhook has ended.
    pub stopped: CancellationToken,
}

impl Stop {
    /// Walks through an orderly stop once it is asked for.
    ///
    /// The API server keeps calling over connections that it has open, for as long as it has not
    /// noticed that the endpoint left, and it does not repeat a call that broke off. So the server
    /// goes on as before for `delay`, then asks for each connection back with its next answer, and
    /// only after `last_answers` closes those that stayed idle.
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
    let room = Room::new(limits.connections);
    let connections = TaskTracker::new();
    let accepting = async {
        loop {
            let (stream, peer) = accept(&listener, &room, || {
                service.metrics().closed("accept");
            })
            .await;
            let place = room.enter().await;
            let acceptor = acceptor.clone();
            let connection = connection::run(
                stream,
                acceptor,
                Arc::clone(&service),
                place,
                limits,
                stop.clone(),
            );
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
        warn!(connections = connections.len(), "stopped with connections open");
    }
    stop.stopped.cancel();
}

/// The next connection. A failure is survived: those that are served go on, and the next attempt
/// does not spin.
async fn accept(listener: &TcpListener, room: &Room, failed: impl Fn()) -> (TcpStream, SocketAddr) {
    static THROTTLE: Throttle = Throttle::new();
    loop {
        let error = match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => error,
        };
        failed();
        if THROTTLE.passes() {
            warn!(%error, "cannot accept a connection");
        }
        match Errno::from_io_error(&error) {
            // The client has gone again: nothing to wait for.
            Some(Errno::CONNABORTED | Errno::CONNRESET) => {}
            // Out of file descriptors, although the room is not full: others share them.
            Some(Errno::MFILE | Errno::NFILE) => {
                room.make_room();
                tokio::time::sleep(PAUSE).await;
            }
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Between attempts to accept.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener on `address`.
///
/// # Errors
/// The address cannot be bound, with the address in the message.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, io::Error> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}
