//! The chart as code: what it renders and what it refuses, all with the real `helm`. What the API
//! server makes of the objects is tested on the control plane.

pub(crate) mod helm;

/// `tls.mode`, and `certs/make.sh`.
mod certificates;
/// CustomResourceDefinitions and the class for parked claims.
mod definitions;
/// Definitions of older releases.
mod growth;
/// Monitors, alerts and the dashboard.
mod monitoring;
/// The policies for all users.
mod numa;
/// Labels of all objects, the accounts, and what the pods need on some platforms.
mod platforms;
/// The pods of the webhook and of the controller, and what is around them.
mod pods;
/// The policy, which Helm checks as stowplan does.
mod policy;
/// What the chart renders as a whole.
mod rendering;
/// What the accounts and users may do.
mod rights;
/// Upgrades with the values of an older chart.
mod upgrade;
/// The values, their schema and their documentation.
pub(crate) mod values;
/// For which objects the API server calls the webhook, and how.
mod webhooks;
