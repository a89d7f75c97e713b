//! The Lease of the controller, which a teardown takes, so that it is the only one to write.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::ATTEMPTS;
use crate::cli::print_notice;
use crate::cli::requests::{CONFLICT, NOT_FOUND, has_code};
use crate::cluster::time_of_server;
use crate::controller::lease;

/// The holder that the Lease names meanwhile.
const HOLDER: &str = "stowplan-teardown";

/// The time for which a record of the Lease is valid: no controller takes it earlier.
const VALID: Duration = Duration::from_secs(60);

/// How far the clock of a controller may be behind that of the API server.
const SKEW: Duration = Duration::from_secs(300);

/// How long ago a controller has renewed the Lease that still runs: more than twice as long as it pauses.
const RENEWED: Duration = Duration::from_secs(6);

/// The Lease, held for the teardown.
pub(super) struct Hold {
    pub(super) leases: Api<Lease>,
    pub(super) namespace: String,
    renewed: Instant,
    /// The controller that held the Lease and renewed it until the end.
    pub(super) running: Option<String>,
    /// There was a Lease before.
    pub(super) has_existed: bool,
}

impl Hold {
    /// Takes the Lease from a controller that has ended, or, after as long as an ending one needs,
    /// from one that still runs. In a dry run it says only that it would.
    pub(super) async fn take(
        client: &Client,
        namespace: &str,
        dry_run: bool,
    ) -> anyhow::Result<Self> {
        let leases = Api::<Lease>::namespaced(client.clone(), namespace);
        let began = Instant::now();
        let first = leases.get_opt(lease::NAME).await.context("the Lease cannot be read")?;
        let mut hold = Self {
            leases,
            namespace: namespace.to_owned(),
            renewed: began,
            running: None,
            has_existed: first.is_some(),
        };
        let seconds = lease::DURATION.as_secs();
        // The clock of this machine may be hours ahead.
        let now = time_of_server(client).await;
        let held = first.as_ref().filter(|lease| !now.is_some_and(|now| is_expired(lease, now)));
        if let Some(controller) = held.and_then(holder) {
            let wait = if dry_run { "would wait" } else { "waiting" };
            print_notice(&format!(
                "{wait} up to {seconds} s for the end of controller {controller}, which holds the \
                 Lease {namespace}/{}",
                lease::NAME
            ));
            let mut before = first.and_then(|lease| lease.metadata.resource_version);
            let mut changed = None;
            // A controller that has ended renews no more.
            while !dry_run && began.elapsed() < lease::DURATION {
                sleep(Duration::from_secs(1)).await;
                let now = hold.leases.get_opt(lease::NAME).await?;
                let version =
                    now.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
                if version != before {
                    (before, changed) = (version, Some(Instant::now()));
                }
                hold.running = now.as_ref().and_then(holder);
                if hold.running.is_none() {
                    break;
                }
                hold.running.take_if(|_| changed.is_none_or(|at| at.elapsed() > RENEWED));
            }
        }
        if dry_run {
            return Ok(hold);
        }
        hold.renew().await?;
        if let Some(controller) = &hold.running {
            print_notice(&format!(
                "controller {controller} still runs: the Lease is taken from it; waiting \
                 {seconds} s for the end of its last write"
            ));
            sleep(lease::DURATION).await;
        }
        Ok(hold)
    }

    pub(super) async fn renew(&mut self) -> anyhow::Result<()> {
        for _ in 0..ATTEMPTS {
            let found = self.leases.get_opt(lease::NAME).await?;
            let exists = found.is_some();
            let mut lease = found.unwrap_or_default();
            lease.metadata.name = Some(lease::NAME.to_owned());
            lease.spec = Some(LeaseSpec {
                holder_identity: Some(HOLDER.to_owned()),
                lease_duration_seconds: i32::try_from(VALID.as_secs()).ok(),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..lease.spec.unwrap_or_default()
            });
            let parameters = PostParams::default();
            let written = match exists {
                true => self.leases.replace(lease::NAME, &parameters, &lease).await,
                false => self.leases.create(&parameters, &lease).await,
            };
            match written {
                Ok(_) => {
                    self.renewed = Instant::now();
                    return Ok(());
                }
                // Its holder has renewed it in between.
                Err(error) if has_code(&error, &[NOT_FOUND, CONFLICT]) => {}
                Err(error) => return Err(error).context("the Lease cannot be taken"),
            }
        }
        anyhow::bail!(
            "the Lease {}/{} cannot be taken: it changes again and again",
            self.namespace,
            lease::NAME
        )
    }

    /// Returns true if it is time to renew the Lease.
    pub(super) fn is_due(&self) -> bool {
        self.renewed.elapsed() >= VALID / 4
    }
}

/// The holder of a Lease other than an earlier teardown; `None` if it was released.
fn holder(lease: &Lease) -> Option<String> {
    let holder = lease.spec.as_ref()?.holder_identity.clone()?;
    (!holder.is_empty() && holder != HOLDER).then_some(holder)
}

/// Returns true if a Lease was not renewed for long: its holder has ended without a release. `now` is the API server's
/// time, the Lease has its holder's.
fn is_expired(lease: &Lease, now: Timestamp) -> bool {
    let Some(LeaseSpec { renew_time: Some(renewed), lease_duration_seconds, .. }) = &lease.spec
    else {
        return false;
    };
    let duration = lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let duration = duration.map_or(lease::DURATION, Duration::from_secs);
    renewed.0.checked_add(duration + SKEW).is_ok_and(|end| end < now)
}
