//! The objects of our own API group that the Streams constraints are written in.

pub mod host_pool;
pub mod streams_job;

pub use host_pool::HostPool;
pub use streams_job::StreamsJob;
