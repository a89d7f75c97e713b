//! The webhook's certificate, kept by the controller (tls.mode self), on a control plane: pods are
//! created under failurePolicy Fail, so each call that the API server cannot verify is an error.
//!
//! One control plane serves all of these tests, one after the other. A CA lives for 72 seconds.

/// Certificates that are made, lost, replaced and left alone.
pub(crate) mod kept;

use crate::harness::{Case, Suite, cases};
use crate::world::World;
use testbed::control_plane::{Install, NodeSpec};
use testbed::tools::Kubernetes;

const CASES: &[Case] = cases! { certificates,
    kept:
        a_rotation_loses_no_pod, from_nothing_to_a_verified_pod, deleted_secrets_are_made_again,
        an_emptied_bundle_is_filled_again, the_account_is_held_to_its_two_secrets,
        a_foreign_secret_is_reported_and_left_alone, two_controllers_at_once_make_one_ca;
};

/// One at a time: each takes the certificate from under the others.
pub(crate) fn suite() -> Suite {
    Suite {
        cases: Vec::new(),
        alone: CASES.to_vec(),
        at_once: 1,
        kubernetes: Kubernetes::Newest,
        start: || Box::pin(World::start(NodeSpec::numbered(2), strict)),
    }
}

fn strict(install: Install) -> Install {
    install.self_signed(["72s", "18s", "3s"]).value("webhook.failurePolicy", "Fail")
}
