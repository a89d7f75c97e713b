//! The resources that the Streams constraints write.

use crate::api;
use crate::view::resource::Resource;

/// A HostPool.
pub(crate) const HOST_POOL: Resource = Resource {
    group: api::GROUP,
    version: api::VERSION_IN_GROUP,
    kind: "HostPool",
    plural: "hostpools",
    namespaced: true,
};

/// A StreamsJob.
pub(crate) const STREAMS_JOB: Resource = Resource {
    group: api::GROUP,
    version: api::VERSION_IN_GROUP,
    kind: "StreamsJob",
    plural: "streamsjobs",
    namespaced: true,
};
