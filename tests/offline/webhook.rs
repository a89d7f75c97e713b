//! The webhook as a process, and clients that misbehave on purpose.
//!
//! The clients write their bytes by hand: an HTTP library would not send what these tests need.
//! Nothing here measures time; bounds are wide and only distinguish "ends" from "hangs".

/// One connection, written byte by byte.
pub(crate) mod client;
/// A connection pool like the API server's, and a constant load on it.
pub(crate) mod pool;
/// The webhook's process, its certificates, its log and its admin port.
pub(crate) mod process;

/// Stalled bodies and waiting decisions in numbers.
mod attacks;
/// Certificates that are replaced, and certificates that no API server would trust.
mod certificates;
/// Clients that take more than their share of bytes, time or connections.
mod limits;
/// Panics, overload, the admin port and the log.
mod operation;
/// HTTP/1.1, HTTP/2 and TLS at their edges.
mod protocol;
/// Reviews that are malformed or unusual.
mod reviews;
/// A cluster that is not known yet, and a policy that is invalid at the start.
mod start;
/// A stop that loses no call.
mod stop;
