//! Reads an installation, with the rights that the user has.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::future::Future;
use std::iter;
use std::time::Duration;

use anyhow::bail;
use futures::{StreamExt as _, stream};
use hyper::Request;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ServiceReference, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::ask;
use super::facts::{Facts, LeaseFacts, Read, Replica, Role, Trial, Unread};
use super::processes::find_policy;
use crate::cli::live::policy::{ANNOTATION, WEBHOOKS};
use crate::cli::trial;
use crate::cluster::Presence;
use crate::controller::lease;
use crate::kubernetes::{REQUIRED, is_missing_right};
use crate::placement::record;
use crate::server::admin::status::Status;
use crate::systems::policy::Policy;
use crate::systems::{self, CustomResourceDefinition, DIAGNOSTICS, Diagnostics, TABLES};
use crate::view::table::Definition;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(10);

/// The requests about pods or rights that are under way at once.
pub(super) const AT_ONCE: usize = 16;

/// The pods and Deployments of stowplan.
const COMPONENTS: &str = "app.kubernetes.io/component in (webhook,controller)";

/// The label of the EndpointSlices of a Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// The ports of containers that serve `/status`.
const ADMIN_PORTS: &[&str] = &["admin", "ctl-admin"];

/// The argument of the webhook that names the Secret of its certificate, if no volume has it.
const SECRET_ARGUMENT: &str = "--tls-secret=";

/// The volume with the certificate.
const SECRET_VOLUME: &str = "tls";

/// The annotation of a test pod that no system places: the webhook warns about it.
const UNKNOWN_KEY: &str = "stowplan.dev/check";

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) installed_in: Option<&'a str>,
    pub(super) try_in: Option<&'a str>,
}

/// Reads an installation.
///
/// # Errors
/// The API server cannot be reached, or it is not known where to look.
pub(super) async fn read(client: &Client, asked: Asked<'_>) -> anyhow::Result<Facts> {
    let every = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let mutating = match timeout(REQUEST, mutating.list(&every)).await {
        Ok(Err(error)) if !matches!(error, kube::Error::Api(_)) => {
            bail!("the API server cannot be reached: {}", describe(&error));
        }
        Err(_) => bail!("the API server does not answer in time"),
        Ok(listed) => to_read("list mutatingwebhookconfigurations", listed),
    };
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let validating = request("list validatingwebhookconfigurations", validating.list(&every)).await;
    let mut mutating = mutating.map(|list| list.items);
    let mut validating = validating.map(|list| list.items);
    for configurations in mutating.iter_mut() {
        configurations.retain(|of| of.webhooks.iter().flatten().any(|of| is_own(&of.name)));
    }
    for configurations in validating.iter_mut() {
        configurations.retain(|of| of.webhooks.iter().flatten().any(|of| is_own(&of.name)));
    }
    let called = find_service(&mutating, &validating, asked.installed_in);
    let namespace = asked.installed_in.or_else(|| Some(called.as_ref()?.namespace.as_str()));
    let namespace = namespace.map(str::to_owned);
    if namespace.is_none() && mutating.is_err() && validating.is_err() {
        bail!(
            "where stowplan is installed is not known, because webhook configurations may not be \
             listed: name its namespace (--installed-in)"
        );
    }
    let named = mutating.iter().flatten().find_map(|of| of.annotations().get(ANNOTATION));
    let mut facts = Facts {
        now: Timestamp::now(),
        version: env!("CARGO_PKG_VERSION"),
        policy_name: named.cloned(),
        mutating,
        validating,
        namespace,
        service: Err(Unread::Nowhere),
        slices: Err(Unread::Nowhere),
        deployments: Err(Unread::Nowhere),
        replicas: Err(Unread::Nowhere),
        secret: Err(Unread::Nowhere),
        policy: Err(Unread::Nowhere),
        server: request("get /version", client.apiserver_version()).await,
        lease: Err(Unread::Nowhere),
        rights: BTreeMap::new(),
        definitions: read_definitions(client).await,
        settings: read_settings(client).await,
        trial: None,
    };
    read_namespace(client, called.as_ref(), &mut facts).await;
    facts.rights = ask::read_rights(client, &facts).await;
    if let Some(namespace) = asked.try_in {
        let policy = find_policy(&facts);
        facts.trial = Some(try_pod(client, namespace, &policy).await);
    }
    Ok(facts)
}

/// The Service of the installation that is looked for, or of the first one.
fn find_service(
    mutating: &Read<Vec<MutatingWebhookConfiguration>>,
    validating: &Read<Vec<ValidatingWebhookConfiguration>>,
    installed_in: Option<&str>,
) -> Option<ServiceReference> {
    let mutating = mutating.iter().flatten().flat_map(|of| of.webhooks.iter().flatten());
    let validating = validating.iter().flatten().flat_map(|of| of.webhooks.iter().flatten());
    let clients =
        mutating.map(|of| &of.client_config).chain(validating.map(|of| &of.client_config));
    let mut services = clients.filter_map(|client| client.service.as_ref());
    let is_asked = |of: &&ServiceReference| installed_in.is_none_or(|own| own == of.namespace);
    services.find(is_asked).cloned()
}

fn is_own(webhook: &str) -> bool {
    webhook.ends_with(WEBHOOKS)
}

/// Reads what is in the namespace of the installation.
async fn read_namespace(client: &Client, called: Option<&ServiceReference>, facts: &mut Facts) {
    let Some(namespace) = facts.namespace.clone() else { return };
    let labelled = ListParams::default().labels(COMPONENTS);
    let deployments = Api::<Deployment>::namespaced(client.clone(), &namespace);
    let deployments = request("list deployments.apps", deployments.list(&labelled)).await;
    facts.deployments = deployments.map(|list| list.items);
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let pods = request("list pods", pods.list(&labelled)).await;
    facts.replicas = match pods {
        Ok(pods) => Ok(read_replicas(client, &namespace, &pods.items).await),
        Err(unread) => Err(unread),
    };
    if let Some(called) = called {
        let services = Api::<Service>::namespaced(client.clone(), &called.namespace);
        facts.service = request("get services", services.get_opt(&called.name)).await;
        let slices = Api::<EndpointSlice>::namespaced(client.clone(), &called.namespace);
        let of_service = ListParams::default().labels(&format!("{OF_SERVICE}={}", called.name));
        let slices =
            request("list endpointslices.discovery.k8s.io", slices.list(&of_service)).await;
        facts.slices = slices.map(|list| list.items);
    }
    let leases = Api::<Lease>::namespaced(client.clone(), &namespace);
    let found = request("get leases.coordination.k8s.io", leases.get_opt(lease::NAME)).await;
    facts.lease = found.map(|lease| {
        let mut presence = Presence::default();
        let state = presence.observe(lease.as_ref(), Instant::now(), facts.now);
        LeaseFacts { state, lease }
    });
    if let Some((namespace, name)) = facts.policy_name.as_deref().and_then(|of| of.split_once('/'))
    {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        facts.policy = request(&format!("get configmaps {name}"), maps.get_opt(name)).await;
    }
    if facts.replicas_of(Role::Webhook).all(|replica| replica.status.is_err()) {
        facts.secret = read_secret(client, &namespace, facts).await;
    }
}

async fn read_replicas(client: &Client, namespace: &str, pods: &[Pod]) -> Vec<Replica> {
    let mut asked = Vec::new();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        for (role, container) in containers.filter_map(|of| Some((Role::of(of)?, of))) {
            asked.push((pod, role, container));
        }
    }
    let read = asked.into_iter().map(|(pod, role, container)| async move {
        let status = read_status(client, namespace, pod, container).await;
        Replica { pod: pod.name_any(), role, status }
    });
    stream::iter(read).buffered(AT_ONCE).collect().await
}

/// Reads `/status` of a container, through the API server.
async fn read_status(
    client: &Client,
    namespace: &str,
    pod: &Pod,
    container: &Container,
) -> Read<Status> {
    let name = pod.name_any();
    let is_running = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    if !is_running {
        return Err(Unread::Failed(format!("pod {name} does not run")));
    }
    let mut ports = container.ports.iter().flatten();
    let is_admin = |of: &str| ADMIN_PORTS.contains(&of);
    let port = ports.find(|port| port.name.as_deref().is_some_and(is_admin));
    let Some(port) = port.map(|port| port.container_port) else {
        return Err(Unread::Failed(format!("pod {name} has no port {}", ADMIN_PORTS[0])));
    };
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/status");
    let asked = Request::get(path).body(Vec::new());
    let asked = asked.map_err(|error| Unread::Failed(error.to_string()))?;
    let text = request("get pods/proxy", client.request_text(asked)).await;
    let text = text.map_err(|unread| match unread {
        Unread::Failed(problem) => Unread::Unanswered(problem),
        unread => unread,
    })?;
    serde_json::from_str(&text).map_err(|_| {
        Unread::Failed(format!("pod {name} does not answer at /status: it is of an older version"))
    })
}

/// Reads the chain in the Secret of the webhook's certificate.
async fn read_secret(client: &Client, namespace: &str, facts: &Facts) -> Read<Vec<u8>> {
    let named = facts.containers().find_map(|(role, deployment, container)| {
        let arguments = container.args.iter().flatten();
        let mut named = arguments.filter_map(|of| of.strip_prefix(SECRET_ARGUMENT));
        let spec = deployment.spec.as_ref()?.template.spec.as_ref()?;
        let volume = spec.volumes.iter().flatten().find(|of| of.name == SECRET_VOLUME);
        let mounted = volume.and_then(|of| of.secret.as_ref()?.secret_name.as_deref());
        let name = named.next().or(mounted)?;
        (role == Role::Webhook).then(|| name.to_owned())
    });
    let name = named.ok_or(Unread::Nowhere)?;
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = request(&format!("get secrets {name}"), secrets.get_opt(&name)).await?;
    let data = secret.and_then(|secret| secret.data);
    let chain = data.and_then(|mut data| data.remove("tls.crt"));
    Ok(chain.map(|chain| chain.0).unwrap_or_default())
}

async fn read_definitions(client: &Client) -> Read<Vec<CustomResourceDefinition>> {
    let mut names: BTreeSet<String> =
        systems::definitions().iter().map(|definition| definition.name_any()).collect();
    let kinds = TABLES.iter().map(|table| table.kind());
    let foreign = kinds.filter(|kind| kind.definition == Definition::Foreign);
    names.extend(foreign.map(|kind| format!("{}.{}", kind.resource.plural, kind.resource.group)));
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let mut found = Vec::new();
    for name in names {
        let right = "get customresourcedefinitions.apiextensions.k8s.io";
        found.extend(request(right, api.get_opt(&name)).await?);
    }
    Ok(found)
}

async fn read_settings(
    client: &Client,
) -> BTreeMap<&'static str, Read<Option<BTreeMap<String, String>>>> {
    let mut settings = BTreeMap::new();
    for Diagnostics { system, installation, .. } in DIAGNOSTICS {
        let Some((namespace, name)) = installation.settings else { continue };
        let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let right = format!("get configmaps {name} in {namespace}");
        let map = request(&right, maps.get_opt(name)).await;
        settings.insert(system.name, map.map(|map| map.map(|map| map.data.unwrap_or_default())));
    }
    settings
}

/// Creates a test pod: one that a system always changes or, if the policy has turned these
/// systems off, one that the webhook warns about.
async fn try_pod(client: &Client, namespace: &str, policy: &Policy) -> Read<Trial> {
    let enabled = DIAGNOSTICS.iter().filter(|of| (of.system.enabled)(policy));
    let mut annotations = enabled.map(|of| of.installation.trial);
    let annotations = annotations.find(|annotations| !annotations.is_empty());
    let expects_patch = annotations.is_some();
    let annotations = annotations.unwrap_or(&[(UNKNOWN_KEY, "trial")]);
    let created = trial::create_pod(client, namespace, "stowplan-check-", annotations);
    let right = format!("create pods in {namespace}");
    let answer = request(&right, created).await?;
    let is_warned = annotations
        .iter()
        .any(|(key, _)| answer.warnings.iter().any(|warning| warning.contains(key)));
    let mut trial =
        Trial { namespace: namespace.to_owned(), expects_patch, is_warned, ..Trial::default() };
    match answer.created {
        Ok(pod) => {
            trial.is_created = true;
            trial.is_patched = is_placed(&pod, annotations);
        }
        // The API server's own refusal, by RBAC; a webhook's names the webhook.
        Err((403, message)) if is_missing_right(&message) => return Err(Unread::Forbidden(right)),
        Err((_, message)) => trial.message = message,
    }
    Ok(trial)
}

/// Whether stowplan has placed a pod with these annotations: it has the record or, where the policy
/// wants none, keeps to other nodes than pods with the value of one of the annotations. Other webhooks
/// may add affinities too.
fn is_placed(pod: &Value, annotations: &[(&str, &str)]) -> bool {
    if pod["metadata"]["annotations"].get(record::KEY).is_some() {
        return true;
    }
    let terms = &pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED];
    let expressions = terms
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|term| term["labelSelector"]["matchExpressions"].as_array())
        .flatten();
    let mut values = expressions.filter_map(|of| of["values"].as_array()).flatten();
    values.any(|value| annotations.iter().any(|(_, asked)| value == asked))
}

/// Awaits the answer to a request. `right`: what it needs.
pub(super) async fn request<T>(
    right: &str,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Read<T> {
    match timeout(REQUEST, answer).await {
        Ok(answer) => to_read(right, answer),
        Err(_) => Err(Unread::Failed(format!("{right}: no answer in {} s", REQUEST.as_secs()))),
    }
}

fn to_read<T>(right: &str, answer: Result<T, kube::Error>) -> Read<T> {
    answer.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 403 => match is_missing_right(&status.message) {
            true => Unread::Forbidden(right.to_owned()),
            false => Unread::Denied(format!("{right}: {}", describe(&error))),
        },
        _ => Unread::Failed(format!("{right}: {}", describe(&error))),
    })
}

/// The message of the API server, or the root cause.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("HTTP status {}", status.code),
        error => {
            let root = iter::successors(error.source(), |&cause| cause.source()).last();
            root.map_or_else(|| error.to_string(), ToString::to_string)
        }
    }
}
