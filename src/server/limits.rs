//! All limits that a server sets to its clients.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The largest request body, in bytes. The API server takes objects of up to 3 MiB; an update
/// carries two, and the envelope comes on top (controller-runtime's cap is the same).
pub const MAX_BODY: usize = 7 * 1024 * 1024;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most open connections; beyond that, the longest idle ones are closed. Also the most
    /// requests whose bodies are read at once.
    pub connections: usize,
    /// The most requests that are being decided, including those that wait for objects. Further
    /// ones are answered 503 immediately, and the API server tries again.
    pub requests: usize,
    /// How many bytes of each body count against [`small_bytes`](Self::small_bytes); an ordinary
    /// pod is smaller. The rest counts against [`large_bytes`](Self::large_bytes), so that a few
    /// huge bodies do not block ordinary pods.
    pub small_body: usize,
    /// The most bytes for the first parts of all bodies.
    pub small_bytes: usize,
    /// The most bytes for the remaining parts of all bodies.
    pub large_bytes: usize,
    /// From the connection's first byte to the end of the TLS handshake.
    pub handshake: Duration,
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// How long a body may take if the request has no timeout. The default of Kubernetes.
    pub body: Duration,
    /// How long a client may leave an answer unread.
    pub answer: Duration,
    /// How long a connection may be idle. The API server closes idle connections after 90 s, and
    /// must be the first to do so: it does not repeat a call that meets a closed connection.
    pub idle: Duration,
    /// How long a request may wait for objects that the watches have not delivered yet.
    pub wait: Duration,
    /// How long the server reads from a connection that it closes, so that no reset destroys the
    /// last answer before the client has read it.
    pub linger: Duration,
    /// How long connections may take to end after the stop has reached `closing`.
    pub stop: Duration,
}

impl Limits {
    /// The limits of the webhook.
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

    /// These limits, with no more connections than this process may have open files.
    ///
    /// The soft limit is raised to the hard one first, as Go programs do: container runtimes start
    /// processes with a soft limit of 1024, for the sake of programs that call `select`.
    #[must_use]
    pub fn within_open_files(mut self) -> Self {
        let Rlimit { mut current, maximum } = getrlimit(Resource::Nofile);
        if current != maximum
            && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
        {
            current = maximum;
        }
        if let Some(files) = current {
            let available =
                usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(RESERVED_FILES);
            self.connections = self.connections.min(available).max(1);
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
