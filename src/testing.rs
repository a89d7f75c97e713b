//! What tests, benches and fuzz targets use of this crate: the one door besides the binary.
//!
//! The paths are those of the crate's own modules. Nothing here is a stable interface: stowplan is a
//! program, and its interface is the command line, the annotations and the objects.

pub mod admission {
    //! See `src/admission.rs`.
    pub use crate::admission::stored::decide_creation;
    pub use crate::admission::{
        Admission, Decision, ParseError, Pass, Refusal, Review, answer, decide, validate,
    };
}

pub mod api {
    //! See `src/api.rs`.
    pub use crate::api::{VERSION, condition};
}

pub mod check {
    //! See `src/cli/check/installation.rs`.
    pub use crate::cli::check::installation::rights::{Right, of_account};

    use crate::systems::DIAGNOSTICS;

    /// What the match conditions of the webhook for pods name, if the policy is the default one.
    pub fn sent_by() -> impl Iterator<Item = &'static str> {
        DIAGNOSTICS.iter().flat_map(|system| system.installation.sent_by).copied()
    }
}

pub mod cluster {
    //! See `src/cluster.rs`.
    pub use crate::cluster::Cluster;
}

pub mod placement {
    //! See `src/placement.rs`.
    pub use crate::placement::{claim, intent, merge, object, pod, reason, record};
}

pub mod server {
    //! See `src/server.rs`.
    pub use crate::server::{Stop, bind, limits, serve, service};
}

pub mod simulation {
    //! See `src/simulation.rs`.
    pub use crate::simulation::*;
}

pub mod systems {
    //! See `src/systems.rs`.
    pub use crate::systems::{RECONCILERS, SYSTEMS, TABLES, object, plan, policy, project, view};

    use serde_json::Value;

    use crate::view::{Name, View};

    /// What the systems show about a pod of the View, beside the decision.
    #[must_use]
    pub fn explain(view: &View, policy: &policy::Policy, pod: &Name) -> Value {
        let explained = (crate::systems::EXPLANATION.explain)(view, policy, pod);
        explained.unwrap_or_default().fields.into()
    }

    pub mod coschedule {
        //! See `src/systems/coschedule.rs`.
        pub use crate::systems::coschedule::{keys, kinds, resources};
    }
    pub mod streams {
        //! See `src/systems/streams.rs`.
        pub use crate::systems::streams::{api, kinds};
    }
}

pub mod telemetry {
    //! See `src/telemetry.rs`.
    pub use crate::telemetry::{KindLabels, Metrics};
}

pub mod tls {
    //! See `src/tls.rs`.
    pub use crate::tls::{Certificate, Change};
}

pub mod view {
    //! See `src/view.rs`.
    pub use crate::view::table::{ApiObject, Object, Scope};
    pub use crate::view::{Key, Name, View, resource};
}
