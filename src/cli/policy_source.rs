//! The policy of a long-running command: where it comes from, and which one is in force.
//!
//! A file serves runs outside a cluster. In a cluster it is a ConfigMap, which is watched through
//! the API: a mounted file would change up to a minute later, and in each pod at another time. Both
//! give [`Finding`]s, which [`Keeper`] judges: only a valid text replaces the policy in force.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::runtime::watcher;
use tracing::{error, info, warn};

use super::input;
use super::process::POLL_INTERVAL;
use crate::cluster::watch_named;
use crate::server::admin::status::PolicyStatus;
use crate::telemetry::log::Filter;
use crate::telemetry::{KindLabels, Metrics};
use stowplan_core::kubernetes::{OTHER_DENIAL, is_missing_right};
use stowplan_core::names::fingerprint;
use stowplan_core::systems::policy::Policy;

/// The key of the ConfigMap that has the policy.
pub(in crate::cli) const KEY: &str = "policy.yaml";

/// The remedy if the ConfigMap or its key does not exist.
const WRITE_AGAIN: &str = "`helm upgrade` with the release's values writes it again";

/// The arguments that name the policy.
#[derive(Args, Debug)]
#[group(id = "policy source")]
pub(super) struct Arguments {
    /// The policy, YAML; read again when it changes [default: each field has its default]
    #[arg(long, value_name = "FILE", conflicts_with = "policy_config_map")]
    policy: Option<PathBuf>,
    /// The ConfigMap in the namespace that has the policy, under the key policy.yaml; watched, so
    /// that changes are in force at once
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    policy_config_map: Option<String>,
}

/// Where the policy comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// All defaults.
    Defaults,
    File(PathBuf),
    ConfigMap {
        namespace: String,
        name: String,
    },
}

/// A state of the source.
#[derive(Debug)]
pub(super) enum Finding {
    /// The text of the policy, and where it is.
    Text { place: String, text: String },
    /// There is no text: why, and the remedy.
    Unusable(String),
    /// The source does not answer. Nothing is wrong with the policy.
    Unreachable(String),
}

/// The effect of a finding.
#[derive(Debug)]
pub(super) enum PolicyChange {
    None,
    /// A new policy is in force.
    New(Arc<Policy>),
    /// There is a new problem; the old policy, or none, stays in force.
    Rejected(String),
}

/// The policy in force.
#[derive(Debug)]
pub(super) struct Keeper {
    namespace: String,
    /// The image of placeholders if the policy names none.
    image: String,
    /// The policy in force, and the reason why the last finding did not come into force.
    state: PolicyStatus,
    /// True if the reason was its content, and not a source that does not answer.
    is_rejected: bool,
    metrics: Arc<Metrics>,
    log_filter: Filter,
}

impl Arguments {
    /// The source that the arguments name, for a process in `namespace`.
    pub(super) fn into_source(self, namespace: &str) -> Source {
        match (self.policy, self.policy_config_map) {
            (Some(path), _) => Source::File(path),
            (None, Some(name)) => Source::ConfigMap { namespace: namespace.to_owned(), name },
            (None, None) => Source::Defaults,
        }
    }
}

impl Source {
    /// Reads the source before anything else runs.
    ///
    /// # Errors
    /// Why the file cannot be read. An invalid policy is no error: a process that ended would be
    /// started again and again, and nothing would show why.
    pub(super) fn read_first(&self) -> anyhow::Result<Finding> {
        match self {
            Self::Defaults => {
                Ok(Finding::Text { place: "the defaults".to_owned(), text: String::new() })
            }
            Self::File(path) => {
                File::open(path).with_context(|| input::format_path(path))?;
                Ok(read_file(path))
            }
            Self::ConfigMap { namespace, name } => {
                Ok(Finding::Unreachable(format!("ConfigMap {namespace}/{name} is not read yet")))
            }
        }
    }

    /// Follows the source until the process ends, and gives each finding to `take`: a file on a
    /// thread of its own, because a file system that hangs must not block anything else; a
    /// ConfigMap on a task of the current runtime.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn follow(
        self,
        client: Option<&Client>,
        metrics: Arc<Metrics>,
        mut take: impl FnMut(Finding) + Send + 'static,
    ) -> io::Result<()> {
        // A panic here is a bug in a parser; the next content may be parsed.
        let mut take = move |finding| {
            if catch_unwind(AssertUnwindSafe(|| take(finding))).is_err() {
                error!("reading the policy panicked");
            }
        };
        match self {
            Self::Defaults => {}
            Self::File(path) => {
                thread::Builder::new().name("policy".to_owned()).spawn(move || {
                    loop {
                        thread::sleep(POLL_INTERVAL);
                        take(read_file(&path));
                    }
                })?;
            }
            Self::ConfigMap { namespace, name } => {
                let client = client.expect("with a ConfigMap the cluster is not from files");
                let mut maps = Box::pin(watch_named::<ConfigMap>(client, &namespace, &name));
                tokio::spawn(async move {
                    let place = format!("{namespace}/{name}");
                    while let Some(item) = maps.next().await {
                        if let Err(error) = &item {
                            let labels = KindLabels { kind: "policy" };
                            metrics.watch_errors.get_or_create(&labels).inc();
                            warn!(kind = labels.kind, %error, "a watch failed; it is started again");
                        }
                        take(find_in_map(&place, item));
                    }
                });
            }
        }
        Ok(())
    }
}

fn read_file(path: &Path) -> Finding {
    let place = input::format_path(path);
    match input::read_text(path) {
        Ok(text) => Finding::Text { place, text },
        Err(error) => Finding::Unusable(format!("{place}: {error:#}")),
    }
}

/// Reads what a watch of the ConfigMap `place` reported.
fn find_in_map(place: &str, item: Result<Option<ConfigMap>, watcher::Error>) -> Finding {
    match item {
        Ok(Some(map)) => match find_text(&map) {
            Ok(text) => {
                Finding::Text { place: format!("ConfigMap {place}"), text: text.to_owned() }
            }
            Err(problem) => Finding::Unusable(format!("ConfigMap {place} {problem}")),
        },
        Ok(None) => Finding::Unusable(format!("ConfigMap {place} does not exist; {WRITE_AGAIN}")),
        Err(error) => match find_status(&error) {
            Some(status) if status.code == 403 && is_missing_right(&status.message) => {
                Finding::Unusable(format!(
                    "ConfigMap {place} may not be read: {}; give this account the rights get, list and \
                 watch on it, as the chart's Role does",
                    status.message
                ))
            }
            Some(status) if status.code == 403 => Finding::Unreachable(format!(
                "ConfigMap {place} cannot be read: {} ({OTHER_DENIAL})",
                status.message
            )),
            _ => Finding::Unreachable(format!("ConfigMap {place} cannot be read: {error}")),
        },
    }
}

/// The API server's answer in the error of a watch.
fn find_status(error: &watcher::Error) -> Option<&kube::core::Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status),
        watcher::Error::WatchError(status) => Some(status),
        _ => None,
    }
}

/// The text of the policy in a ConfigMap.
///
/// # Errors
/// Why it has none, to follow the name of the ConfigMap.
pub(super) fn find_text(map: &ConfigMap) -> Result<&str, String> {
    if let Some(text) = map.data.as_ref().and_then(|data| data.get(KEY)) {
        return Ok(text);
    }
    if map.binary_data.as_ref().is_some_and(|data| data.contains_key(KEY)) {
        return Err(format!(
            "has {KEY} under binaryData, so it is no UTF-8 text; write it as data"
        ));
    }
    let keys = map.data.iter().flat_map(BTreeMap::keys).map(String::as_str).take(5);
    let others = match keys.collect::<Vec<_>>().join(", ") {
        keys if keys.is_empty() => "it has none".to_owned(),
        keys => format!("it has {keys}"),
    };
    Err(format!("has no key {KEY} ({others}); {WRITE_AGAIN}"))
}

impl Keeper {
    /// A keeper without a policy, for a process in `namespace`. `image` is the image of placeholders
    /// if the policy names none.
    pub(super) fn new(
        namespace: &str,
        image: &str,
        metrics: &Arc<Metrics>,
        log_filter: Filter,
    ) -> Self {
        Self {
            namespace: namespace.to_owned(),
            image: image.to_owned(),
            state: PolicyStatus::default(),
            is_rejected: false,
            metrics: Arc::clone(metrics),
            log_filter,
        }
    }

    /// Judges a finding. Each problem is logged once.
    pub(super) fn judge(&mut self, finding: Finding) -> PolicyChange {
        match finding {
            Finding::Text { place, text } => match Policy::from_yaml(&text) {
                Ok(policy) => self.accept(policy, fingerprint(&text)),
                Err(problem) => self.reject(format!("{place}: {problem}")),
            },
            Finding::Unusable(problem) => self.reject(problem),
            Finding::Unreachable(problem) => {
                // What is known stays as it is.
                if self.state.digest.is_none() && !self.is_rejected {
                    self.state.problem = Some(problem);
                }
                PolicyChange::None
            }
        }
    }

    fn accept(&mut self, mut policy: Policy, digest: String) -> PolicyChange {
        self.state.problem = None;
        self.is_rejected = false;
        self.metrics.policy_rejected.set(0);
        if self.state.digest.as_ref() == Some(&digest) {
            return PolicyChange::None;
        }
        if self.state.digest.is_some() {
            self.metrics.count_policy_reload(true);
        }
        info!(digest, "a policy is in force");
        self.log_filter.set(&policy.log);
        self.metrics.set_policy(&digest);
        self.state.digest = Some(digest);
        // stowplan's own namespace is always excluded: its webhook must not prevent its pods from
        // starting.
        policy.excluded_namespaces.insert(self.namespace.clone());
        let placeholder_image = &mut policy.coschedule.placeholder.image;
        if placeholder_image.is_empty() {
            self.image.clone_into(placeholder_image);
        }
        PolicyChange::New(Arc::new(policy))
    }

    fn reject(&mut self, problem: String) -> PolicyChange {
        self.metrics.policy_rejected.set(1);
        if self.is_rejected && self.state.problem.as_ref() == Some(&problem) {
            return PolicyChange::None;
        }
        self.is_rejected = true;
        self.metrics.count_policy_reload(false);
        match &self.state.digest {
            Some(digest) => error!(problem, digest, "the previous policy stays in force"),
            None => error!(problem, "no policy is in force: not ready"),
        }
        self.state.problem = Some(problem.clone());
        PolicyChange::Rejected(problem)
    }

    /// Returns the state that `/readyz` reports.
    pub(super) fn state(&self) -> PolicyStatus {
        self.state.clone()
    }
}

#[cfg(test)]
mod tests;
