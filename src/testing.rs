//! Items that tests, benches and fuzz targets use of this crate: the one door besides the binary.
//!
//! The paths are those of the crate's own modules. Nothing here is a stable interface: stowplan is a
//! program, and its interface is the command line, the annotations and the objects.

pub mod check {
    //! See `src/cli/check/installation.rs`.
    pub use crate::cli::check::installation::rights::{Right, of_account};
}

pub mod cluster {
    //! See `src/cluster.rs`.
    pub use crate::cluster::Cluster;
}

pub mod server {
    //! See `src/server.rs`.
    pub use crate::server::{Stop, bind, limits, serve, service};
}

pub mod telemetry {
    //! See `src/telemetry.rs`.
    pub use crate::telemetry::{KindLabels, Metrics};
}

pub mod tls {
    //! See `src/tls.rs`.
    pub use crate::tls::{Certificate, Change};
}
