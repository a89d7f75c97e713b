//! Follows the controller's Lease, and derives from it whether a controller is running.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use tokio::time::{Duration, Instant, sleep, timeout};
use tracing::{info, warn};

use super::Cluster;
use stowplan_core::view::ControllerState;

/// The controller counts as running if its Lease was renewed within this time. Longer than a change
/// of leaders, and than a rollout.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two reads of the controller's Lease.
const LEASE_INTERVAL: Duration = Duration::from_secs(5);

/// The time between two reads while no controller leads: pods of groups are admitted without their group until the
/// webhook sees one.
const LEASE_INTERVAL_WITHOUT: Duration = Duration::from_secs(1);

/// How long one read of the Lease may take.
const LEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// The last renewal of the Lease that was observed.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// `renewTime` of the last observed renewal.
    seen: Option<Timestamp>,
    /// When the renewal was observed, by this machine's clock.
    renewed: Option<Instant>,
}

impl Presence {
    /// Processes the Lease (`None`: it does not exist). Returns what it says about the controller.
    ///
    /// Only the first call compares the clocks of two machines. Later renewals count from when they
    /// were observed.
    pub(crate) fn observe(
        &mut self,
        lease: Option<&Lease>,
        now: Instant,
        time: Timestamp,
    ) -> ControllerState {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let Some(spec) = spec else {
            *self = Self::default();
            return ControllerState::NotYet;
        };
        let written = spec.renew_time.as_ref().map(|renewed| renewed.0);
        let is_held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        if let Some(written) = written.filter(|written| is_held && self.seen != Some(*written)) {
            let age = match self.seen {
                // A time in the future comes from a clock that is ahead of this machine's.
                None => Duration::try_from(time.duration_since(written)).unwrap_or_default(),
                Some(_) => Duration::ZERO,
            };
            self.renewed = now.checked_sub(age);
            self.seen = Some(written);
        }
        match self.renewed.map(|renewed| now.duration_since(renewed) < PATIENCE) {
            Some(true) => ControllerState::Leads,
            Some(false) => ControllerState::Stopped,
            // A Lease without a holder was released by one that led.
            None if written.is_some() => ControllerState::Stopped,
            None => ControllerState::NotYet,
        }
    }
}

impl Cluster {
    /// Follows the controller's Lease, on a task of the current runtime: the controller counts as
    /// present while the Lease is renewed.
    pub fn watch_controller(
        self: &Arc<Self>,
        client: &Client,
        namespace: &str,
        lease: &'static str,
    ) {
        let cluster = Arc::clone(self);
        let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
        self.tasks.spawn("leases", async move {
            let mut presence = Presence::default();
            let mut is_logged = false;
            loop {
                match timeout(LEASE_TIMEOUT, api.get_opt(lease)).await {
                    Ok(Ok(found)) => {
                        is_logged = false;
                        let now = Instant::now();
                        let state = presence.observe(found.as_ref(), now, Timestamp::now());
                        cluster.set_controller(state);
                    }
                    // If the Lease cannot be read, the last result stays valid.
                    Ok(Err(error)) if !is_logged => {
                        is_logged = true;
                        warn!(lease, error = %error, "the controller's lease cannot be read");
                    }
                    Err(error) if !is_logged => {
                        is_logged = true;
                        warn!(lease, %error, "the controller's lease is not answered");
                    }
                    Ok(Err(_)) | Err(_) => {}
                }
                let leads = cluster.view().controller_present();
                sleep(if leads { LEASE_INTERVAL } else { LEASE_INTERVAL_WITHOUT }).await;
            }
        });
    }

    fn set_controller(&self, state: ControllerState) {
        let leads = i64::from(state == ControllerState::Leads);
        self.metrics.controller_present.set(leads);
        if self.view().controller() == state {
            return;
        }
        match state {
            ControllerState::Leads => info!("the controller renews its lease"),
            ControllerState::NotYet => warn!("no controller has led yet"),
            ControllerState::Stopped => warn!("no controller has renewed its lease for a while"),
        }
        self.view_mut().set_controller(state);
        self.changes.send_replace(());
    }
}

/// Returns true if this Lease was renewed shortly before `now`.
pub(crate) fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let state = Presence::default().observe(Some(lease), Instant::now(), now);
    state == ControllerState::Leads
}

#[cfg(test)]
mod tests {
    use ControllerState::{Leads, NotYet, Stopped};

    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(holder: &str, renewed: i64) -> Lease {
        let time = Timestamp::from_second(1_000_000 + renewed).unwrap();
        let spec = json!({"holderIdentity": holder, "renewTime": format!("{time:.6}")});
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    /// The results for leases that are read at these seconds, on a clock that is `ahead` seconds
    /// ahead.
    fn seen(looks: &[(u32, Option<Lease>)], ahead: i64) -> Vec<ControllerState> {
        let start = Instant::now() + SECOND * 1000;
        let mut presence = Presence::default();
        let mut look = |(at, lease): &(u32, Option<Lease>)| {
            let time = Timestamp::from_second(1_000_000 + i64::from(*at) + ahead).unwrap();
            presence.observe(lease.as_ref(), start + SECOND * *at, time)
        };
        looks.iter().map(&mut look).collect()
    }

    #[test]
    fn a_controller_is_running_while_its_lease_is_renewed() {
        let held = |renewed| Some(lease("c", renewed));
        let looks = [(0, held(0)), (30, held(29)), (88, held(29)), (91, held(29)), (95, held(94))];
        assert_eq!(seen(&looks, 0), [Leads, Leads, Leads, Stopped, Leads]);
        let looks = [(0, held(-61)), (5, held(-61)), (10, held(9))];
        assert_eq!(seen(&looks, 0), [Stopped, Stopped, Leads]);
    }

    #[test]
    fn a_lease_without_a_holder_is_ignored_and_a_deleted_one_ends_the_presence() {
        let free = |renewed| Some(lease("", renewed));
        assert_eq!(seen(&[(0, None), (5, free(4)), (10, None)], 0), [NotYet, Stopped, NotYet]);
        // Released at a stop: another controller may take it soon.
        let looks = [(0, Some(lease("c", 0))), (5, free(5)), (59, free(5)), (61, free(5))];
        assert_eq!(seen(&looks, 0), [Leads, Leads, Leads, Stopped]);
        assert_eq!(seen(&[(0, Some(lease("c", 0))), (5, None)], 0), [Leads, NotYet]);
        assert_eq!(seen(&[(0, Some(Lease::default()))], 0), [NotYet]);
        // Before the first leader there is no Lease, or an empty one.
        let empty = Lease { spec: Some(LeaseSpec::default()), ..Lease::default() };
        let looks = [(0, None), (1, Some(empty)), (2, Some(lease("c", 2)))];
        assert_eq!(seen(&looks, 0), [NotYet, NotYet, Leads]);
    }

    #[test]
    fn different_clocks_matter_only_for_the_first_read() {
        let looks = [(0, Some(lease("c", 0))), (10, Some(lease("c", 9)))];
        assert_eq!(seen(&looks, 3600), [Stopped, Leads]);
        assert_eq!(seen(&looks, -3600), [Leads, Leads]);
    }
}
