//! What a client may take, in one place.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The largest request body, in bytes. The API server takes objects of up to 3 MiB; an update
/// carries two, and the envelope comes on top (controller-runtime's cap is the same).
pub const MAX_BODY: usize = 7 * 1024 * 1024;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are open at once; when there are more, the longest quiet are closed. Also
    /// the most requests whose bodies are awaited at once.
    pub connections: usize,
    /// Requests that are decided at once, those that wait for objects included. More are answered
    /// 503 at once: the API server tries again.
    pub requests: usize,
    /// The part of each body, in bytes, that is taken from [`small_bytes`](Self::small_bytes): all of
    /// an ordinary pod. The rest comes from [`large_bytes`](Self::large_bytes), so that a few huge
    /// bodies do not keep ordinary pods out.
    pub small_body: usize,
    /// Bytes that the beginnings of all bodies may hold at once.
    pub small_bytes: usize,
    /// Bytes that the rests of all bodies may hold at once.
    pub large_bytes: usize,
    /// From the connection's first byte to the end of the TLS handshake.
    pub handshake: Duration,
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// How long a body may take where the request names no timeout. Kubernetes' own default.
    pub body: Duration,
    /// How long a client may leave an answer untaken.
    pub answer: Duration,
    /// How long a connection may stay without a request. The API server's pool gives up after 90 s,
    /// and must be the first to: it does not repeat a call that meets a closed connection.
    pub idle: Duration,
    /// The most that a request may wait for objects on their way.
    pub wait: Duration,
    /// How long a connection that we close still reads what the client sends, so that our last
    /// answer is not destroyed by a reset before the client has read it.
    pub linger: Duration,
    /// How long connections may take to end once all is told to end.
    pub stop: Duration,
}

impl Limits {
    /// What the webhook is served with.
    pub const DEFAULT: Self = Self {
        connections: 4096,
        requests: 512,
        small_body: 64 * 1024,
        small_bytes: 32 * 1024 * 1024,
        large_bytes: 32 * 1024 * 1024,
        handshake: Duration::from_secs(5),
        head: Duration::from_secs(5),
        body: Duration::from_secs(10),
        answer: Duration::from_secs(10),
        idle: Duration::from_secs(150),
        wait: Duration::from_secs(1),
        linger: Duration::from_secs(2),
        stop: Duration::from_secs(10),
    };

    /// These limits, with as many connections as this process may have files open.
    ///
    /// The soft limit is raised to the hard one first, as Go programs do: container runtimes start
    /// processes with a soft limit of 1024, which is there for programs that call `select`.
    #[must_use]
    pub fn within_open_files(mut self) -> Self {
        let Rlimit { mut current, maximum } = getrlimit(Resource::Nofile);
        if current != maximum
            && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
        {
            current = maximum;
        }
        if let Some(files) = current {
            let left = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(RESERVED_FILES);
            self.connections = self.connections.min(left).max(1);
        }
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Open files that are not connections of the webhook: probes, watches, certificate, policy.
const RESERVED_FILES: usize = 128;
