//! Reads an installation, with the rights that the user has.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use anyhow::bail;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hyper::Request;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kube::api::{ListParams, ObjectList, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::facts::{AccountRights, Configuration, Facts, Read, Replica, Role, Unread};
use super::processes::find_policy;
use super::rights::{self, Right};
use super::trial::Trial;
use crate::cli::check::Arguments;
use crate::cli::live::policy::{ANNOTATION, WEBHOOKS};
use crate::cli::requests::{self, FORBIDDEN, has_code, lacks_right, list_pages};
use crate::cluster::{Presence, time_of_cluster};
use crate::controller::lease;
use stowplan_core::kubernetes::is_missing_right;
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{self, CustomResourceDefinition, DIAGNOSTICS, Diagnostics, TABLES};
use stowplan_core::view::table::Definition;

/// The most time that one request may take.
const REQUEST: Duration = Duration::from_secs(10);

/// The requests about pods or rights that are under way at once.
const AT_ONCE: usize = 16;

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

/// Reads an installation.
///
/// # Errors
/// The API server cannot be reached, or it is not known where to look.
pub(super) async fn read(client: &Client, arguments: &Arguments) -> anyhow::Result<Facts> {
    let reader = Reader { client, missing: RefCell::default() };
    let installed_in = arguments.installed_in.as_deref();
    let mutating = reader.read_configurations("mutatingwebhookconfigurations").await;
    if let Err(Unread::Failed(problem)) = &mutating {
        bail!("the API server cannot be reached: {problem}");
    }
    let validating = reader.read_configurations("validatingwebhookconfigurations").await;
    let own = mutating.iter().chain(&validating).flatten().flat_map(|of| &of.webhooks);
    let mut called = own
        .filter_map(|of| of.client_config.service.as_ref())
        .filter(|service| installed_in.is_none_or(|namespace| namespace == service.namespace));
    let called = called.next().map(|of| (of.namespace.clone(), of.name.clone()));
    let called = called.as_ref().map(|(namespace, name)| (&**namespace, &**name));
    let namespace = installed_in.or_else(|| called.map(|(namespace, _)| namespace));
    if namespace.is_none() && mutating.is_err() && validating.is_err() {
        bail!(
            "where stowplan is installed is not known, because webhook configurations may not be \
             listed: name its namespace (--installed-in)"
        );
    }
    let own = mutating.iter().chain(&validating).flatten();
    let mut named = own.filter_map(|of| of.metadata.annotations.as_ref());
    let policy_name = named.find_map(|of| of.get(ANNOTATION)).cloned();
    let policy = policy_name.as_deref().and_then(|of| of.split_once('/'));
    let right = format!("get configmaps {}", policy.unwrap_or_default().1);
    let slices = called.map(|(_, name)| format!("{OF_SERVICE}={name}")).unwrap_or_default();
    let of_service = called.map(|(namespace, _)| namespace);
    let lease = "get leases.coordination.k8s.io";
    let unread = mutating.as_ref().err().or_else(|| validating.as_ref().err()).cloned();
    let unnamed = unread.unwrap_or(match namespace {
        Some(_) => Unread::Unnamed,
        None => Unread::Nowhere,
    });
    let now = time_of_cluster(client).await;
    let mut facts = Facts {
        now,
        version: env!("CARGO_PKG_VERSION"),
        service: reader.get("get services", called.ok_or_else(|| unnamed.clone())).await,
        slices: match called {
            Some(_) => {
                reader.list("list endpointslices.discovery.k8s.io", of_service, &slices).await
            }
            None => Err(unnamed.clone()),
        },
        deployments: reader.list("list deployments.apps", namespace, COMPONENTS).await,
        replicas: reader.read_replicas(namespace).await,
        secret: Err(Unread::Nowhere),
        policy: reader.get(&right, policy.ok_or(unnamed)).await,
        lease: reader
            .get(lease, namespace.map(|of| (of, lease::NAME)).ok_or(Unread::Nowhere))
            .await
            .map(|lease| {
                let state = Presence::default().observe(lease.as_ref(), Instant::now(), now);
                (state, lease)
            }),
        rights: BTreeMap::new(),
        definitions: reader.read_definitions().await,
        settings: reader.read_settings().await,
        trial: None,
        missing: BTreeSet::new(),
        namespace: namespace.map(str::to_owned),
        policy_name,
        mutating,
        validating,
    };
    if facts.webhook_replicas().all(|replica| replica.status.is_err()) {
        facts.secret = reader.read_secret(&facts).await;
    }
    facts.rights = reader.read_rights(&facts).await;
    facts.missing = reader.missing.take();
    if let Some(namespace) = &arguments.try_in {
        facts.trial = Some(reader.try_pod(namespace, &find_policy(&facts)).await);
    }
    Ok(facts)
}

/// Reads with the rights that the user has, and notes those that are missing.
struct Reader<'c> {
    client: &'c Client,
    missing: RefCell<BTreeSet<String>>,
}

impl Reader<'_> {
    /// Awaits the answer to a request. `right`: what it needs.
    async fn request<T>(
        &self,
        right: &str,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Read<T> {
        let Ok(answer) = timeout(REQUEST, answer).await else {
            return Err(Unread::Failed(format!("{right}: no answer in {} s", REQUEST.as_secs())));
        };
        answer.map_err(|error| {
            if lacks_right(&error) {
                self.missing.borrow_mut().insert(right.to_owned());
                return Unread::Forbidden(right.to_owned());
            }
            let problem = format!("{right}: {}", describe(&error));
            if has_code(&error, &[FORBIDDEN]) {
                Unread::Denied(problem)
            } else {
                Unread::Failed(problem)
            }
        })
    }

    /// Reads what is at a path.
    async fn get_at<T: DeserializeOwned>(&self, right: &str, path: &str) -> Read<T> {
        let asked = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
        self.request(right, async { self.client.request(asked?).await }).await
    }

    /// Reads an object of a namespace.
    async fn get<K>(&self, right: &str, object: Read<(&str, &str)>) -> Read<Option<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let (namespace, name) = object?;
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        self.request(right, api.get_opt(name)).await
    }

    /// Reads the objects of a namespace with these labels.
    async fn list<K>(&self, right: &str, namespace: Option<&str>, labels: &str) -> Read<Vec<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace.ok_or(Unread::Nowhere)?);
        let labelled = ListParams::default().labels(labels);
        self.request(right, list_pages(&api, labelled)).await
    }

    /// Reads the webhook configurations that have a webhook of stowplan.
    async fn read_configurations(&self, plural: &str) -> Read<Vec<Configuration>> {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        let list: ObjectList<Configuration> = self.get_at(&format!("list {plural}"), &path).await?;
        let is_own = |of: &Configuration| of.webhooks.iter().any(|of| of.name.ends_with(WEBHOOKS));
        Ok(list.items.into_iter().filter(is_own).collect())
    }

    async fn read_replicas(&self, namespace: Option<&str>) -> Read<Vec<Replica>> {
        let pods: Vec<Pod> = self.list("list pods", namespace, COMPONENTS).await?;
        let namespace = namespace.unwrap_or_default();
        let mut asked = Vec::new();
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            for (role, container) in containers.filter_map(|of| Some((Role::of(of)?, of))) {
                asked.push(self.read_replica(namespace, pod, role, container));
            }
        }
        Ok(stream::iter(asked).buffered(AT_ONCE).collect().await)
    }

    /// Reads `/status` of a container, through the API server.
    async fn read_replica(
        &self,
        namespace: &str,
        pod: &Pod,
        role: Role,
        container: &Container,
    ) -> Replica {
        let name = pod.name_any();
        let is_admin = |of: &str| ADMIN_PORTS.contains(&of);
        let mut ports = container.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref().is_some_and(is_admin));
        let status = match port {
            _ if pod.status.as_ref().is_none_or(|status| status.pod_ip.is_none()) => {
                Err(Unread::Failed(format!("pod {name} does not run")))
            }
            None => Err(Unread::Failed(format!("pod {name} has no port {}", ADMIN_PORTS[0]))),
            Some(port) => {
                let port = port.container_port;
                let path =
                    format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/status");
                self.get_at("get pods/proxy", &path).await.map_err(|unread| match unread {
                    Unread::Failed(problem) => Unread::Unanswered(problem),
                    unread => unread,
                })
            }
        };
        Replica { pod: name, role, status }
    }

    /// Reads the chain in the Secret of the webhook's certificate.
    async fn read_secret(&self, facts: &Facts) -> Read<Vec<u8>> {
        let mut webhooks = facts.containers().filter(|(role, _, _)| *role == Role::Webhook);
        let name = webhooks.find_map(|(_, deployment, container)| {
            let mut arguments = container.args.iter().flatten();
            let named = arguments.find_map(|of| of.strip_prefix(SECRET_ARGUMENT));
            let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
            let mut volumes = pod.volumes.iter().flatten();
            let volume = volumes.find(|of| of.name == SECRET_VOLUME);
            named.or_else(|| volume.and_then(|of| of.secret.as_ref()?.secret_name.as_deref()))
        });
        let right = format!("get secrets {}", name.unwrap_or_default());
        let secret: Option<Secret> =
            self.get(&right, facts.namespace.as_deref().zip(name).ok_or(Unread::Nowhere)).await?;
        let chain = secret.and_then(|secret| secret.data?.remove("tls.crt"));
        Ok(chain.map(|chain| chain.0).unwrap_or_default())
    }

    async fn read_definitions(&self) -> Read<Vec<CustomResourceDefinition>> {
        let mut names: BTreeSet<String> =
            systems::definitions().iter().map(|definition| definition.name_any()).collect();
        let kinds = TABLES.iter().map(|table| table.kind());
        let foreign = kinds.filter(|kind| kind.definition == Definition::Foreign);
        names.extend(foreign.map(|of| format!("{}.{}", of.resource.plural, of.resource.group)));
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        let mut found = Vec::new();
        for name in names {
            let right = "get customresourcedefinitions.apiextensions.k8s.io";
            found.extend(self.request(right, api.get_opt(&name)).await?);
        }
        Ok(found)
    }

    async fn read_settings(
        &self,
    ) -> BTreeMap<&'static str, Read<Option<BTreeMap<String, String>>>> {
        let mut settings = BTreeMap::new();
        for Diagnostics { system, installation, .. } in DIAGNOSTICS {
            let Some((namespace, name)) = installation.settings else { continue };
            let right = format!("get configmaps {name} in {namespace}");
            let map: Read<Option<ConfigMap>> = self.get(&right, Ok((namespace, name))).await;
            let data = map.map(|map| map.map(|map| map.data.unwrap_or_default()));
            settings.insert(system.name, data);
        }
        settings
    }

    /// Asks which of the rights that the accounts need they have.
    async fn read_rights(&self, facts: &Facts) -> BTreeMap<Role, Read<AccountRights>> {
        let own = facts.namespace.as_deref().unwrap_or_default();
        let mut read = BTreeMap::new();
        for (role, deployment, container) in facts.containers() {
            let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            let account = pod.and_then(|pod| pod.service_account_name.as_deref());
            let account = account.unwrap_or("default");
            let rights = rights::needed_by(role, container.args.as_deref().unwrap_or_default());
            let asked = rights.into_iter().map(|right| self.ask(own, account, right));
            let answers: Read<Vec<_>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await;
            read.insert(role, answers.map(|answers| (account.to_owned(), answers)));
        }
        read
    }

    async fn ask(&self, own: &str, account: &str, right: Right) -> Read<(Right, bool)> {
        let mut resource = right.resource.splitn(2, '/');
        let attributes = json!({
            "group": right.group, "resource": resource.next(), "subresource": resource.next(),
            "verb": right.verb, "name": right.name, "namespace": right.is_own.then_some(own),
        });
        let of_namespace = format!("system:serviceaccounts:{own}");
        let review = json!({"metadata": {}, "spec": {
            "resourceAttributes": attributes,
            "user": format!("system:serviceaccount:{own}:{account}"),
            "groups": ["system:serviceaccounts", of_namespace, "system:authenticated"],
        }});
        let review = serde_json::from_value(review).map_err(kube::Error::SerdeError);
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let parameters = PostParams::default();
        let created = async { reviews.create(&parameters, &review?).await };
        let needed = "create subjectaccessreviews.authorization.k8s.io";
        let created = self.request(needed, created).await?;
        Ok((right, created.status.is_some_and(|status| status.allowed)))
    }

    /// Creates a test pod: one that a system always changes or, if the policy has turned these
    /// systems off, one that the webhook warns about.
    async fn try_pod(&self, namespace: &str, policy: &Policy) -> Read<Trial> {
        let enabled = DIAGNOSTICS.iter().filter(|of| (of.system.enabled)(policy));
        let mut annotations = enabled.map(|of| of.installation.trial);
        let placed = annotations.find(|annotations| !annotations.is_empty());
        let created = Trial::create(self.client, namespace, placed);
        let right = format!("create pods in {namespace}");
        let trial = self.request(&right, created).await?;
        match &trial.created {
            // The API server's own refusal, by RBAC; a webhook's names the webhook.
            Err((FORBIDDEN, message)) if is_missing_right(message) => Err(Unread::Forbidden(right)),
            _ => Ok(trial),
        }
    }
}

/// Describes an error by the message of the API server, or by the root cause.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => requests::message(error)
            .map_or_else(|| format!("HTTP status {}", status.code), str::to_owned),
        error => requests::root_cause(error).unwrap_or_else(|| error.to_string()),
    }
}
