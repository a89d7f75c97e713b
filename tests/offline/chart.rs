//! The chart as code: what it renders and what it refuses, all with the real `helm`. What the API
//! server makes of the objects is tested on the control plane.

pub(crate) mod helm;

/// Certificates of the webhook, and `certs/make.sh`.
mod certificates;
/// CustomResourceDefinitions and the class for parked claims.
mod definitions;
/// Definitions of older releases.
mod growth;
/// Alerts and the dashboard.
mod monitoring;
/// Labels, names, arguments, and the chart's metadata.
mod objects;
/// The policy, which Helm checks as stowplan does.
mod policy;
/// The complete chart as it is rendered, and the effect of each change of its values.
mod rendering;
/// The rights of the accounts and users.
mod rights;
/// Upgrades with the values of an older chart.
mod upgrade;
/// The values, their schema and their documentation.
pub(crate) mod values;
/// For which objects the API server calls the webhook, and the keys that the templates name.
mod webhooks;
