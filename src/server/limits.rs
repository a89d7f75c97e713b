//! What a client may take, in one place.

use std::time::Duration;

/// The largest request body, in bytes. The API server takes objects of up to 3 MiB; an update
/// carries two, and the envelope comes on top (controller-runtime's cap is the same).
pub const MAX_BODY: usize = 7 * 1024 * 1024;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are open at once.
    pub connections: usize,
    /// Requests that are served at once. More are answered 503 at once: the API server tries again.
    pub requests: usize,
    /// Bytes of request bodies that are held at once.
    pub body_bytes: usize,
    /// From the connection's first byte to the end of the TLS handshake.
    pub handshake: Duration,
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// How long a body may take where the request names no timeout. Kubernetes' own default.
    pub body: Duration,
    /// How long a connection may stay without a request. The API server's pool gives up after 90 s,
    /// and must be the first to: it does not repeat a call that meets a closed connection.
    pub idle: Duration,
    /// The most that a request may wait for objects on their way.
    pub wait: Duration,
    /// How long connections may take to end once all is told to end.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            requests: 512,
            body_bytes: 64 * 1024 * 1024,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(150),
            wait: Duration::from_secs(1),
            stop: Duration::from_secs(10),
        }
    }
}
