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
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
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

use super::process;
use crate::controller::certificates::secrets::Role;
use crate::controller::lease;
use crate::systems::SYSTEMS;
use crate::systems::plan::operation::{remove, replace, test};

/// The number of objects in one page of a list.
const PAGE: u32 = 500;

/// How often a write is tried again if the object changes meanwhile.
const ATTEMPTS: usize = 10;

/// The holder that the Lease names meanwhile.
const HOLDER: &str = "stowplan-teardown";

/// How long a record of the Lease is valid: no controller takes it earlier.
const VALID: Duration = Duration::from_secs(60);

/// The arguments of `stowplan teardown`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # Remove what an uninstalled release has left (helm uninstall --no-hooks)
  stowplan teardown --namespace stowplan-system")]
pub(super) struct Arguments {
    /// The namespace in which stowplan is or was installed; its Lease is there
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    /// What the names of the chart's objects start with (its value fullnameOverride, or the
    /// release's name): the Secrets NAME-tls and NAME-ca are removed if stowplan has made them
    #[arg(long, value_name = "NAME", default_value = "stowplan",
          value_parser = NonEmptyStringValueParser::new())]
    name: String,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run_in_cluster(|client| tear_down(client, &arguments.namespace, &arguments.name))
}

async fn tear_down(client: Client, namespace: &str, name: &str) -> anyhow::Result<ExitCode> {
    remove_webhooks::<MutatingWebhookConfiguration>(&client).await?;
    remove_webhooks::<ValidatingWebhookConfiguration>(&client).await?;
    let mut hold = Hold::take(&client, namespace).await?;
    remove_objects(&client, &mut hold).await?;
    remove_gates(&client, &mut hold).await?;
    clean_nodes(&client, &mut hold).await?;
    remove_certificates(&client, namespace, name).await?;
    report_kept(&client).await;
    match &hold.running {
        None => {
            hold.remove().await?;
            Ok(ExitCode::SUCCESS)
        }
        Some(controller) => {
            super::print_notice(&format!(
                "controller {controller} still runs and will take the Lease again within a minute: \
                 uninstall the chart, then run teardown again"
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn report(text: &str) -> anyhow::Result<()> {
    Ok(super::print(&format!("{}\n", super::escape_for_terminal(text)))?)
}

/// Whether an answer says that there is no such object, or that it has changed.
fn has_code(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}

/// Deletes an object if it is still the one that was listed.
async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> anyhow::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let preconditions = Preconditions { uid, resource_version: None };
    match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
        Err(error) if !has_code(&error, &[404, 409]) => {
            Err(error).with_context(|| format!("{name} cannot be deleted"))
        }
        _ => Ok(()),
    }
}

/// Lists all objects, a page at a time.
async fn list<K>(api: &Api<K>, selector: Option<&str>) -> anyhow::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut parameters = ListParams { limit: Some(PAGE), ..ListParams::default() };
    parameters.label_selector = selector.map(str::to_owned);
    let mut all = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        all.extend(page.items);
        parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if parameters.continue_token.is_none() {
            return Ok(all);
        }
    }
}

/// A kind of webhook configurations.
trait Webhooks {
    const KIND: &str;
    fn names(&self) -> impl Iterator<Item = &str>;
}

impl Webhooks for MutatingWebhookConfiguration {
    const KIND: &str = "MutatingWebhookConfiguration";
    fn names(&self) -> impl Iterator<Item = &str> {
        self.webhooks.iter().flatten().map(|webhook| &*webhook.name)
    }
}

impl Webhooks for ValidatingWebhookConfiguration {
    const KIND: &str = "ValidatingWebhookConfiguration";
    fn names(&self) -> impl Iterator<Item = &str> {
        self.webhooks.iter().flatten().map(|webhook| &*webhook.name)
    }
}

/// Removes the configurations with webhooks of stowplan, whatever their release was called.
async fn remove_webhooks<K>(client: &Client) -> anyhow::Result<()>
where
    K: Webhooks + kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let api = Api::<K>::all(client.clone());
    for configuration in list(&api, None).await.with_context(|| K::KIND)? {
        if configuration.names().any(|name| name.ends_with(".stowplan.dev")) {
            let name = configuration.name_any();
            delete(&api, &name, configuration.uid()).await?;
            report(&format!("removed {} {name}", K::KIND))?;
        }
    }
    Ok(())
}

/// The Lease, held for the teardown.
struct Hold {
    leases: Api<Lease>,
    namespace: String,
    renewed: Instant,
    /// The controller that held the Lease and renewed it until the end.
    running: Option<String>,
}

impl Hold {
    /// Takes the Lease from a controller that has ended, or, after as long as an ending one needs,
    /// from one that still runs.
    async fn take(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let leases = Api::<Lease>::namespaced(client.clone(), namespace);
        let began = Instant::now();
        let first = leases.get_opt(lease::NAME).await.context("the Lease cannot be read")?;
        let mut running = None;
        if first.as_ref().and_then(holder).is_some() {
            let before = first.and_then(|lease| lease.metadata.resource_version);
            // A controller that has ended renews no more.
            while began.elapsed() < lease::DURATION {
                sleep(Duration::from_secs(1)).await;
                let now = leases.get_opt(lease::NAME).await?;
                let version =
                    now.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
                match now.as_ref().and_then(holder) {
                    None => {
                        running = None;
                        break;
                    }
                    Some(current) => running = (version != before).then_some(current),
                }
            }
        }
        let mut hold = Self { leases, namespace: namespace.to_owned(), renewed: began, running };
        hold.renew().await?;
        if hold.running.is_some() {
            // Its last write has ended by then.
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
                Err(error) if has_code(&error, &[404, 409]) => {}
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

    async fn remove(self) -> anyhow::Result<()> {
        delete(&self.leases, lease::NAME, None).await?;
        report(&format!("removed Lease {}/{}", self.namespace, lease::NAME))
    }
}

/// The holder of a Lease other than an earlier teardown; `None` if it was released.
fn holder(lease: &Lease) -> Option<String> {
    let holder = lease.spec.as_ref()?.holder_identity.clone()?;
    (!holder.is_empty() && holder != HOLDER).then_some(holder)
}

/// Removes the objects that the systems create, which have their own name as a label.
async fn remove_objects(client: &Client, hold: &mut Hold) -> anyhow::Result<()> {
    for (resource, label) in SYSTEMS.iter().flat_map(|system| system.traces.objects) {
        let kind = ApiResource {
            group: resource.group.to_owned(),
            version: resource.version.to_owned(),
            api_version: resource.api_version(),
            kind: resource.kind.to_owned(),
            plural: resource.plural.to_owned(),
        };
        let everywhere = Api::<DynamicObject>::all_with(client.clone(), &kind);
        for object in list(&everywhere, Some(label)).await.context(resource.plural)? {
            let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
            if object.labels().get(*label) != Some(&name) {
                continue;
            }
            hold.keep().await?;
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kind);
            delete(&api, &name, object.uid()).await?;
            report(&format!("removed {} {namespace}/{name}", resource.kind))?;
        }
    }
    Ok(())
}

/// Sends the patch that `patch` makes of an object, and makes it again if the object has changed.
/// Returns whether there was anything to do.
async fn change<K>(
    api: &Api<K>,
    mut object: K,
    patch: impl Fn(&Value) -> Vec<json_patch::PatchOperation>,
) -> anyhow::Result<bool>
where
    K: kube::Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let name = object.name_any();
    for _ in 0..ATTEMPTS {
        let document = serde_json::to_value(&object)?;
        let changes = patch(&document);
        if changes.is_empty() {
            return Ok(false);
        }
        let version =
            test(&["metadata", "resourceVersion"], document["metadata"]["resourceVersion"].clone());
        let operations = [version].into_iter().chain(changes).collect();
        let patch = Patch::<()>::Json(json_patch::Patch(operations));
        match api.patch(&name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(true),
            Err(error) if has_code(&error, &[409, 422]) => {}
            Err(error) if has_code(&error, &[404]) => return Ok(false),
            Err(error) => return Err(error).with_context(|| format!("{name} cannot be changed")),
        }
        match api.get_opt(&name).await? {
            Some(current) => object = current,
            None => return Ok(false),
        }
    }
    anyhow::bail!("{name} cannot be changed: it changes again and again")
}

/// Removes the scheduling gates of pods, which nothing else would remove.
async fn remove_gates(client: &Client, hold: &mut Hold) -> anyhow::Result<()> {
    let is_own = |gate: &Value| {
        let name = gate["name"].as_str();
        SYSTEMS.iter().flat_map(|system| system.gates).any(|own| name == Some(own.name))
    };
    for pod in list(&Api::<Pod>::all(client.clone()), None).await.context("pods")? {
        let namespace = pod.namespace().unwrap_or_default();
        let name = pod.name_any();
        if pod.spec.as_ref().is_none_or(|spec| spec.scheduling_gates.is_none()) {
            continue;
        }
        hold.keep().await?;
        let api = Api::<Pod>::namespaced(client.clone(), &namespace);
        let is_changed = change(&api, pod, |pod| {
            let gates = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
            let others: Vec<_> = gates.iter().filter(|gate| !is_own(gate)).cloned().collect();
            match others.len() == gates.len() {
                true => Vec::new(),
                false => vec![replace(&["spec", "schedulingGates"], others)],
            }
        });
        if is_changed.await? {
            report(&format!("removed the scheduling gate of Pod {namespace}/{name}"))?;
        }
    }
    Ok(())
}

/// Removes the labels and taints of nodes.
async fn clean_nodes(client: &Client, hold: &mut Hold) -> anyhow::Result<()> {
    let api = Api::<Node>::all(client.clone());
    let traces = || SYSTEMS.iter().map(|system| &system.traces);
    let is_label = |key: &str| {
        traces().filter_map(|traces| traces.node_labels).any(|prefix| key.starts_with(prefix))
    };
    let is_taint =
        |taint: &Value| traces().flat_map(|traces| traces.taints).any(|key| taint["key"] == *key);
    for node in list(&api, None).await.context("nodes")? {
        hold.keep().await?;
        let name = node.name_any();
        let is_changed = change(&api, node, |node| {
            let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
            let labels = labels.map(|(key, _)| key).filter(|key| is_label(key));
            let mut operations: Vec<_> =
                labels.map(|key| remove(&["metadata", "labels", key])).collect();
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let others: Vec<_> = taints.iter().filter(|taint| !is_taint(taint)).cloned().collect();
            if others.len() < taints.len() {
                operations.push(replace(&["spec", "taints"], others));
            }
            operations
        });
        if is_changed.await? {
            report(&format!("removed labels and taints of pools from Node {name}"))?;
        }
    }
    Ok(())
}

/// Removes the webhook's certificate and its CA, if the controller has made them.
async fn remove_certificates(client: &Client, namespace: &str, prefix: &str) -> anyhow::Result<()> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    for (name, role) in Role::names(prefix) {
        let found = api.get_opt(&name).await.with_context(|| format!("Secret {name}"))?;
        if let Some(secret) = found.filter(|secret| role.is_in(secret.labels())) {
            delete(&api, &name, secret.uid()).await?;
            report(&format!("removed Secret {namespace}/{name}"))?;
        }
    }
    Ok(())
}

/// Reports the objects that stay on purpose: users have written them.
async fn report_kept(client: &Client) {
    for definition in crate::systems::definitions() {
        let names = &definition.spec.names;
        let (group, version) = (&*definition.spec.group, &*definition.spec.versions[0].name);
        let kind = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: format!("{group}/{version}"),
            kind: names.kind.clone(),
            plural: names.plural.clone(),
        };
        let api = Api::<DynamicObject>::all_with(client.clone(), &kind);
        if let Ok(objects) = list(&api, None).await {
            let definition = definition.name_any();
            let _ = report(&format!(
                "kept {} {} and their definition; kubectl delete crd {definition} removes them",
                objects.len(),
                names.plural
            ));
        }
    }
}
