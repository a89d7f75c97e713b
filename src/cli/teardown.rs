//! `stowplan teardown`: removes what stowplan has left in a cluster. The chart runs it after an
//! uninstallation; it can be run by hand too.
//!
//! The order matters. Without the webhook configurations no pod gets a new gate. Only the holder of
//! the Lease writes, so the teardown takes it: a controller that still runs cannot undo what
//! follows.

mod hold;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use json_patch::PatchOperation;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions,
};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::live::policy::WEBHOOKS;
use super::live::{Access, parse_namespace};
use super::requests::{CONFLICT, FORBIDDEN, NOT_FOUND, has_changed, has_code, list_pages, message};
use super::{block_on, print_notice};
use crate::controller::certificates::secrets::Role;
use crate::controller::lease;
use hold::Hold;
use stowplan_core::systems::check::words::counted;
use stowplan_core::systems::plan::operation::{remove, replace, test};
use stowplan_core::systems::{SYSTEMS, VALIDATIONS};
use stowplan_core::view::resource::Resource;

/// The number of times that a write is tried if the object changes meanwhile.
const ATTEMPTS: usize = 10;

/// The arguments of `stowplan teardown`.
#[derive(Args, Debug)]
#[command(after_help = "\
Removed are webhook configurations, placeholders and scaling pods, scheduling gates of pods, labels
and taints of nodes, the Lease, and the Secrets that the controller has made. HostPools and
StreamsJobs stay. A controller that still runs would undo it: uninstall the chart first.

Exit code: 0 all is removed (with --dry-run: listed), 1 a controller still runs, 2 an error. What
the API server refuses is listed at the end, and the rest is removed.

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
    // Also if that cannot be printed: another controller would wait until the Lease expires.
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

    /// Renews the Lease if it is due. Called before each write.
    async fn renew_lease(&mut self) -> anyhow::Result<()> {
        match self.hold.as_mut().filter(|hold| hold.is_due()) {
            Some(hold) => hold.renew().await,
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
            self.renew_lease().await?;
            let preconditions = Preconditions { uid, resource_version: None };
            let parameters = DeleteParams::default().preconditions(preconditions);
            match api.delete(name, &parameters).await {
                Err(error) if !has_code(&error, &[NOT_FOUND, CONFLICT]) => {
                    return self.note_refusal(what, error);
                }
                // Also if it is gone, or another object has its name: the listed one no longer
                // exists.
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
            self.renew_lease().await?;
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
    /// Returns an error that is not an answer of the API server.
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
        for configuration in
            list_pages(&api, ListParams::default()).await.with_context(|| kind.kind.clone())?
        {
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
        let everywhere = Api::<Pod>::all(self.client.clone());
        for pod in list_pages(&everywhere, ListParams::default()).await.context("pods")? {
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
        for node in list_pages(&api, ListParams::default()).await.context("nodes")? {
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
        if let Ok(objects) = list_pages(&api, ListParams::default()).await {
            let count = counted(objects.len(), kind);
            report(&format!(
                "kept {count}, and the definition: kubectl delete crd {plural}.{group} removes both"
            ))?;
        }
    }
    Ok(())
}
