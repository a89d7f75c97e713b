//! `stowplan teardown`: removes what stowplan has left in a cluster. The chart runs it after an
//! uninstallation; it can be run by hand too.
//!
//! The order matters. Without the webhook configurations no pod gets a new gate. Whoever holds the
//! Lease is the only one to write, so a controller that still runs cannot undo what follows.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use json_patch::PatchOperation;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::live::policy::WEBHOOKS;
use super::live::{Access, parse_namespace};
use super::requests::{CONFLICT, FORBIDDEN, NOT_FOUND, has_changed, has_code, list_pages, message};
use super::{block_on, print_notice};
use crate::cluster::time_of_server;
use crate::controller::certificates::secrets::Role;
use crate::controller::lease;
use stowplan_core::systems::check::words::counted;
use stowplan_core::systems::plan::operation::{remove, replace, test};
use stowplan_core::systems::{SYSTEMS, VALIDATIONS};
use stowplan_core::view::resource::Resource;

/// The number of times that a write is tried if the object changes meanwhile.
const ATTEMPTS: usize = 10;

/// The holder that the Lease names meanwhile.
const HOLDER: &str = "stowplan-teardown";

/// The time for which a record of the Lease is valid: no controller takes it earlier.
const VALID: Duration = Duration::from_secs(60);

/// How far the clock of a controller may be behind that of the API server.
const SKEW: Duration = Duration::from_secs(300);

/// How long ago a controller has renewed the Lease that still runs: more than twice as long as it pauses.
const RENEWED: Duration = Duration::from_secs(6);

/// The arguments of `stowplan teardown`.
#[derive(Args, Debug)]
#[command(after_help = "\
Removed are webhook configurations, placeholders and scaling pods, scheduling gates of pods, labels
and taints of nodes, the Lease, and the Secrets that the controller has made. HostPools and
StreamsJobs stay. A controller that still runs would undo it: uninstall the chart first.

Exit code: 0 all is removed (with --dry-run: listed), 1 a controller still runs, 2 an error. What the
API server refuses is listed at the end, and the rest is removed.

Examples:
  # What an uninstalled release has left (helm uninstall --no-hooks); nothing is changed
  stowplan teardown -n stowplan-system --dry-run

  # Remove it
  stowplan teardown -n stowplan-system

  # In the cluster of another context, of a release whose objects have another name
  stowplan teardown -n placement --name placement-stowplan --context staging")]
pub(super) struct Arguments {
    /// The namespace in which stowplan is or was installed; its Lease is there
    #[arg(short, long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: String,
    /// The beginning of the names of the chart's objects (its value fullnameOverride, or the
    /// release's name): the Secrets NAME-tls and NAME-ca are removed if stowplan has made them
    #[arg(long, value_name = "NAME", default_value = "stowplan",
          value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// List what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    access: Access,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    block_on(tear_down(arguments))?
}

async fn tear_down(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { namespace, name, dry_run, access } = arguments;
    let connection = access.connect().await?;
    print_notice(&format!("the cluster is {}", connection.server));
    let client = connection.client;
    ensure_namespace(&client, namespace).await?;
    let mut teardown = Teardown { client, dry_run: *dry_run, hold: None, refused: Vec::new() };
    for kind in [
        ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    ] {
        teardown.remove_webhooks(&kind).await?;
    }
    teardown.hold = Some(Hold::take(&teardown.client, namespace, *dry_run).await?);
    teardown.remove_objects().await?;
    teardown.remove_gates().await?;
    teardown.clean_nodes().await?;
    teardown.remove_certificates(namespace, name).await?;
    let kept = report_kept(&teardown.client).await;
    // Also after an error: another controller would wait until the Lease expires.
    let code = teardown.end().await?;
    kept?;
    teardown.ensure_removed()?;
    Ok(code)
}

/// Refuses a namespace that does not exist, in which no Lease can be held. The chart's hook may not
/// read namespaces; its own exists.
async fn ensure_namespace(client: &Client, namespace: &str) -> anyhow::Result<()> {
    match Api::<Namespace>::all(client.clone()).get_opt(namespace).await {
        Ok(None) => anyhow::bail!(
            "there is no namespace {namespace}: name the one in which stowplan is or was \
             installed, or create it for the teardown (`kubectl create namespace {namespace}`)"
        ),
        Err(error) if !has_code(&error, &[FORBIDDEN]) => {
            Err(error).with_context(|| format!("namespace {namespace} cannot be read"))
        }
        _ => Ok(()),
    }
}

fn report(text: &str) -> anyhow::Result<()> {
    Ok(super::print(&format!("{}\n", super::escape_for_terminal(text)))?)
}

/// Lists all objects of a kind.
async fn list_all<K>(api: &Api<K>) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    list_pages(api, ListParams::default()).await
}

/// The Lease, held for the teardown.
struct Hold {
    leases: Api<Lease>,
    namespace: String,
    renewed: Instant,
    /// The controller that held the Lease and renewed it until the end.
    running: Option<String>,
    /// There was a Lease before.
    has_existed: bool,
}

impl Hold {
    /// Takes the Lease from a controller that has ended, or, after as long as an ending one needs,
    /// from one that still runs. In a dry run it says only that it would.
    async fn take(client: &Client, namespace: &str, dry_run: bool) -> anyhow::Result<Self> {
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

    async fn renew(&mut self) -> anyhow::Result<()> {
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

    /// Renews the Lease if it is time. Called before each write.
    async fn keep(&mut self) -> anyhow::Result<()> {
        match self.renewed.elapsed() < VALID / 4 {
            true => Ok(()),
            false => self.renew().await,
        }
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

/// A teardown of the cluster. In a dry run it reads only.
struct Teardown {
    client: Client,
    dry_run: bool,
    /// Held as soon as the webhooks are removed.
    hold: Option<Hold>,
    /// The objects that the API server has refused to change or to delete, and why.
    refused: Vec<String>,
}

impl Teardown {
    /// Reports something that is removed, or in a dry run would be.
    fn report(&self, what: &str) -> anyhow::Result<()> {
        report(&format!("{} {what}", if self.dry_run { "would remove" } else { "removed" }))
    }

    /// Renews the Lease if it is time. Called before each write.
    async fn keep(&mut self) -> anyhow::Result<()> {
        match &mut self.hold {
            Some(hold) => hold.keep().await,
            None => Ok(()),
        }
    }

    /// Deletes an object if it is still the one that was listed, and reports it as `what`.
    async fn delete<K>(
        &mut self,
        api: &Api<K>,
        name: &str,
        uid: Option<String>,
        what: &str,
    ) -> anyhow::Result<()>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        if !self.dry_run {
            self.keep().await?;
            let preconditions = Preconditions { uid, resource_version: None };
            let parameters = DeleteParams::default().preconditions(preconditions);
            match api.delete(name, &parameters).await {
                Err(error) if !has_code(&error, &[NOT_FOUND, CONFLICT]) => {
                    return self.note_refusal(what, error);
                }
                _ => {}
            }
        }
        self.report(what)
    }

    /// Sends the patch that `patch` makes of an object, and makes it again if the object has
    /// changed. Reports what is removed, from `of`; `patch` returns it with the operations.
    async fn change<K>(
        &mut self,
        api: &Api<K>,
        mut object: K,
        of: &str,
        patch: impl Fn(&Value) -> (Vec<PatchOperation>, Vec<String>),
    ) -> anyhow::Result<()>
    where
        K: kube::Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
    {
        let name = object.name_any();
        for _ in 0..ATTEMPTS {
            let document = serde_json::to_value(&object)?;
            let (changes, removed) = patch(&document);
            if changes.is_empty() {
                return Ok(());
            }
            let what = format!("{of}: {}", removed.join(", "));
            if self.dry_run {
                return self.report(&what);
            }
            self.keep().await?;
            let version = document["metadata"]["resourceVersion"].clone();
            let version = test(&["metadata", "resourceVersion"], version);
            let operations = [version].into_iter().chain(changes).collect();
            let patch = Patch::<()>::Json(json_patch::Patch(operations));
            match api.patch(&name, &PatchParams::default(), &patch).await {
                Ok(_) => return self.report(&what),
                Err(error) if has_changed(&error) => {}
                Err(error) if has_code(&error, &[NOT_FOUND]) => return Ok(()),
                Err(error) => return self.note_refusal(of, error),
            }
            match api.get_opt(&name).await? {
                Some(current) => object = current,
                None => return Ok(()),
            }
        }
        self.refused.push(format!("{of}: it changes again and again"));
        Ok(())
    }

    /// Notes what the API server refuses, so that the rest is removed.
    ///
    /// # Errors
    /// It is no answer of the API server.
    fn note_refusal(&mut self, of: &str, error: kube::Error) -> anyhow::Result<()> {
        let Some(problem) = message(&error) else {
            return Err(error).with_context(|| of.to_owned());
        };
        self.refused.push(format!("{of}: {problem}"));
        Ok(())
    }

    /// Removes the configurations with webhooks of stowplan, whatever their release was called.
    async fn remove_webhooks(&mut self, kind: &ApiResource) -> anyhow::Result<()> {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), kind);
        for configuration in list_all(&api).await.with_context(|| kind.kind.clone())? {
            let webhooks = configuration.data["webhooks"].as_array();
            let mut names = webhooks.into_iter().flatten().filter_map(|of| of["name"].as_str());
            if names.any(|name| name.ends_with(WEBHOOKS)) {
                let name = configuration.name_any();
                let what = format!("{} {name}", kind.kind);
                self.delete(&api, &name, configuration.uid(), &what).await?;
            }
        }
        // Otherwise pods would get gates again.
        self.ensure_removed()
    }

    /// Fails if the API server has refused something.
    fn ensure_removed(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.refused.is_empty(), "not removed: {}", self.refused.join("; "));
        Ok(())
    }

    /// Removes the objects that the systems create, which have their own name as a label.
    async fn remove_objects(&mut self) -> anyhow::Result<()> {
        for (resource, label) in SYSTEMS.iter().flat_map(|system| system.traces.objects) {
            let kind = resource.api_resource();
            let everywhere = Api::<DynamicObject>::all_with(self.client.clone(), &kind);
            let labelled = ListParams::default().labels(label);
            for object in list_pages(&everywhere, labelled).await.context(resource.plural)? {
                let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
                if object.labels().get(*label) != Some(&name) {
                    continue;
                }
                let client = self.client.clone();
                let api = Api::<DynamicObject>::namespaced_with(client, &namespace, &kind);
                let what = format!("{} {namespace}/{name}", resource.kind);
                self.delete(&api, &name, object.uid(), &what).await?;
            }
        }
        Ok(())
    }

    /// Removes the scheduling gates of pods, which nothing else would remove.
    async fn remove_gates(&mut self) -> anyhow::Result<()> {
        let is_own = |gate: &Value| {
            let name = gate["name"].as_str();
            SYSTEMS.iter().flat_map(|system| system.gates).any(|own| name == Some(own.name))
        };
        for pod in list_all(&Api::<Pod>::all(self.client.clone())).await.context("pods")? {
            if pod.spec.as_ref().is_none_or(|spec| spec.scheduling_gates.is_none()) {
                continue;
            }
            let namespace = pod.namespace().unwrap_or_default();
            let api = Api::<Pod>::namespaced(self.client.clone(), &namespace);
            let of = format!("the scheduling gate of Pod {namespace}/{}", pod.name_any());
            self.change(&api, pod, &of, |pod| {
                let (own, others) = split(&pod["spec"]["schedulingGates"], is_own);
                let removed = own.iter().filter_map(|gate| gate["name"].as_str());
                let removed: Vec<_> = removed.map(str::to_owned).collect();
                match own.is_empty() {
                    true => (Vec::new(), removed),
                    false => (vec![replace(&["spec", "schedulingGates"], others)], removed),
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Removes the labels and taints of nodes.
    async fn clean_nodes(&mut self) -> anyhow::Result<()> {
        let api = Api::<Node>::all(self.client.clone());
        let traces = || SYSTEMS.iter().map(|system| &system.traces);
        let is_label = |key: &str| {
            traces().filter_map(|traces| traces.node_labels).any(|prefix| key.starts_with(prefix))
        };
        let is_taint = |taint: &Value| {
            traces().flat_map(|traces| traces.taints).any(|key| taint["key"] == *key)
        };
        for node in list_all(&api).await.context("nodes")? {
            let of = format!("labels and taints of Node {}", node.name_any());
            self.change(&api, node, &of, |node| {
                let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
                let labels = labels.map(|(key, _)| key).filter(|key| is_label(key));
                let mut removed: Vec<_> = labels.cloned().collect();
                let mut operations: Vec<_> =
                    removed.iter().map(|key| remove(&["metadata", "labels", key])).collect();
                let (own, others) = split(&node["spec"]["taints"], is_taint);
                if !own.is_empty() {
                    removed
                        .extend(own.iter().filter_map(|taint| Some(taint["key"].as_str()?.into())));
                    operations.push(replace(&["spec", "taints"], others));
                }
                (operations, removed)
            })
            .await?;
        }
        Ok(())
    }

    /// Removes the webhook's certificate and its CA, if the controller has made them.
    async fn remove_certificates(&mut self, namespace: &str, prefix: &str) -> anyhow::Result<()> {
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        for (name, role) in Role::names(prefix) {
            let found = api.get_opt(&name).await.with_context(|| format!("Secret {name}"))?;
            if let Some(secret) = found.filter(|secret| role.is_in(secret.labels())) {
                let what = format!("Secret {namespace}/{name}");
                self.delete(&api, &name, secret.uid(), &what).await?;
            }
        }
        Ok(())
    }

    /// Removes the Lease, unless a controller still runs.
    async fn end(&mut self) -> anyhow::Result<ExitCode> {
        let Some(hold) = self.hold.take() else { return Ok(ExitCode::SUCCESS) };
        if let Some(controller) = hold.running {
            print_notice(&format!(
                "controller {controller} still runs and will take the Lease again within a minute: \
                 uninstall the chart, then run teardown again"
            ));
            return Ok(ExitCode::FAILURE);
        }
        if hold.has_existed || !self.dry_run {
            let what = format!("Lease {}/{}", hold.namespace, lease::NAME);
            self.delete(&hold.leases, lease::NAME, None, &what).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Splits a list into the elements that `is_own` accepts, and the others.
fn split(list: &Value, is_own: impl Fn(&Value) -> bool) -> (Vec<Value>, Vec<Value>) {
    list.as_array().into_iter().flatten().cloned().partition(is_own)
}

/// Reports the objects that stay on purpose: users have written them.
async fn report_kept(client: &Client) -> anyhow::Result<()> {
    for resource in VALIDATIONS.iter().map(|of| of.resource) {
        let Resource { group, kind, plural, .. } = resource;
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource.api_resource());
        if let Ok(objects) = list_all(&api).await {
            let count = counted(objects.len(), kind);
            report(&format!(
                "kept {count}, and the definition: kubectl delete crd {plural}.{group} removes both"
            ))?;
        }
    }
    Ok(())
}
