//! All limits that a server sets to its clients.

use std::time::Duration;

use super::memory;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The largest request body, in bytes. The API server takes objects of up to 3 MiB; an update
/// carries two, and the envelope comes on top (controller-runtime's cap is the same).
pub const MAX_BODY: usize = 7 * 1024 * 1024;

const MIB: usize = 1024 * 1024;

/// The most memory that a connection uses besides its body: buffers of TLS and of HTTP, the tasks,
/// and a part of a large body that waits for its turn. Measured: 103 KiB.
const CONNECTION_BYTES: usize = 112 * 1024;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most open connections; beyond that, the longest idle ones are closed. Also the most
    /// requests whose bodies are read at once.
    pub connections: usize,
    /// The most requests that are being decided. Further ones are answered 503 immediately, and the
    /// API server tries again.
    pub requests: usize,
    /// The most requests that wait for objects. Further ones are decided without waiting, as after
    /// the longest wait.
    pub waiting: usize,
    /// The most bytes of the bodies of requests that wait for objects.
    pub waiting_bytes: usize,
    /// The largest body, in bytes, that the place of its connection includes; an ordinary pod is
    /// smaller.
    pub small_body: usize,
    /// The most bytes of all larger bodies.
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
        waiting: 128,
        waiting_bytes: 8 * MIB,
        small_body: 64 * 1024,
        large_bytes: 32 * MIB,
        handshake: Duration::from_secs(5),
        head: Duration::from_secs(5),
        body: Duration::from_secs(10),
        answer: Duration::from_secs(10),
        idle: Duration::from_secs(150),
        wait: Duration::from_secs(1),
        linger: Duration::from_secs(2),
        stop: Duration::from_secs(10),
    };

    /// The limits of a webhook that may use `memory` bytes, which should be 64 MiB or more.
    ///
    /// Half of the memory is for the process itself and its View of the cluster. The other half is
    /// for clients: three quarters of it for connections with small bodies, the rest for large ones.
    #[must_use]
    pub fn within_memory(mut self, memory: u64) -> Self {
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let places = memory / 8 * 3 / (CONNECTION_BYTES + self.small_body);
        self.connections = self.connections.min(places).max(32);
        self.large_bytes = self.large_bytes.min(memory / 8).max(MAX_BODY);
        self.waiting = self.waiting.min(self.connections / 4);
        self.waiting_bytes = self.waiting_bytes.min(self.large_bytes / 4);
        self
    }

    /// The limits within the memory of this process's cgroup, if that is limited.
    #[must_use]
    pub fn within_cgroup(self) -> Self {
        memory::find_limit().map_or(self, |limit| self.within_memory(limit))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 16 * MIB;

    impl Limits {
        /// The most memory that clients can make the server use, in bytes.
        fn worst_case(&self) -> usize {
            self.connections * (CONNECTION_BYTES + self.small_body) + self.large_bytes
        }
    }

    #[test]
    fn the_worst_case_fits_into_the_memory_with_room_for_the_view() {
        for mebibytes in [64_usize, 96, 128, 256, 512, 4096] {
            let limits = Limits::DEFAULT.within_memory((mebibytes * MIB) as u64);
            let memory = mebibytes * MIB;
            assert!(BASE + limits.worst_case() <= memory * 3 / 4, "{mebibytes} MiB: {limits:?}");
            assert!(limits.large_bytes >= MAX_BODY, "the largest review is read");
            assert!(limits.waiting * 4 <= limits.connections);
            assert!(limits.waiting_bytes * 4 <= limits.large_bytes);
        }
        let huge = Limits::DEFAULT.within_memory(u64::MAX);
        assert_eq!(huge.worst_case(), Limits::DEFAULT.worst_case());
    }

    #[test]
    fn the_charts_limit_suffices_for_many_connections() {
        let values = include_str!("../../charts/stowplan/values.yaml");
        let values: serde_json::Value = serde_saphyr::from_str(values).unwrap();
        let limit = values["resources"]["limits"]["memory"].as_str().unwrap();
        let mebibytes: usize = limit.strip_suffix("Mi").unwrap().parse().unwrap();
        let limits = Limits::DEFAULT.within_memory((mebibytes * MIB) as u64);
        // Three API servers, each with as many calls as it has mutating requests in flight by
        // default, 200 of which are for pods at most.
        assert!(limits.connections >= 512, "{limits:?}");
    }
}
