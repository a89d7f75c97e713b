//! Keeps the webhook's CA and certificate in two Secrets, and the caBundles of its configurations
//! up to date (tls.mode self).
//!
//! Only the leader does this. It reads the objects, plans the next step from them
//! ([`authority::plan`]), carries it out, and begins again. Each write has a precondition (a free
//! name, a resource version, the name of a webhook), so a write of an earlier leader that arrives
//! late changes nothing that was read since. An object of one of the names that does not have
//! stowplan's labels is reported and never changed.

pub(crate) mod secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use hyper::Request as HttpRequest;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, Request};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::MANAGER;
use super::events::Events;
use super::lease::{Leadership, WRITE_TIMEOUT};
use crate::cluster::Clock;
use crate::telemetry::{KindLabels, Metrics, shown};
use crate::tls::authority::{self, Id, State, Step, Terms};
use crate::tls::issue::{self, Certificates, KnownCa, ServiceNames};
use secrets::Role;
use stowplan_core::systems::plan::Event;
use stowplan_core::systems::plan::operation::{add, test};

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long changes are collected into one look.
const GATHER: Duration = Duration::from_millis(100);

/// The most steps of one look. A start from nothing takes six.
const STEPS: usize = 24;

/// The kinds of webhook configurations.
const CONFIGURATIONS: [&str; 2] =
    ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];

/// The objects that are kept, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The Secret with the CA and its key.
    pub ca_secret: String,
    /// The Secret with the webhook's certificate, which the webhook reads.
    pub secret: String,
    /// The Service that API servers call.
    pub service: String,
    /// The name of both webhook configurations.
    pub configuration: String,
    pub terms: Terms,
    /// The object that events are about: the controller's pod.
    pub regarding: ObjectReference,
}

/// Keeps the certificates as long as this process leads.
pub(super) struct Keeper {
    pub settings: Settings,
    pub client: Client,
    pub namespace: String,
    pub leadership: Leadership,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<Clock>,
    /// The CA that every caBundle has, and since when.
    pub published: Mutex<Option<(Id, SystemTime)>>,
}

/// The objects that were read.
struct Found {
    authority: Option<Value>,
    serving: Option<Value>,
    /// The kinds of the webhook configurations, and the webhooks in each that call the Service.
    configurations: Vec<(&'static str, Vec<Entry>)>,
    ca: Option<KnownCa>,
    certificates: Certificates,
    state: State,
    /// The reasons why something stored cannot be used, for the log.
    problems: Vec<String>,
}

/// A webhook that calls the Service.
struct Entry {
    index: usize,
    name: String,
    bundle: Vec<u8>,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Looked {
    /// Nothing had to be written.
    Settled,
    /// Something was written.
    HasWritten,
}

/// Resets the gauges that only a leader sets, when it is dropped.
struct LeaderGauges<'m>(&'m Metrics);

impl Drop for LeaderGauges<'_> {
    fn drop(&mut self) {
        self.0.certificate_not_after.remove(&KindLabels { kind: "ca" });
        self.0.foreign_secrets.set(0);
        self.0.clock_skew.set(0);
    }
}

impl Keeper {
    /// Looks and writes, until the future is dropped.
    pub(super) async fn keep(self) {
        let _gauges = LeaderGauges(&self.metrics);
        let mut changes = self.changes();
        let mut logged = Vec::new();
        let (mut failures, mut writes) = (0, 0);
        loop {
            match self.look(&mut logged).await {
                Ok(Looked::Settled) => {
                    (failures, writes) = (0, 0);
                    tokio::select! {
                        () = sleep(self.settings.terms.interval()) => {}
                        Some(()) = changes.next() => sleep(GATHER).await,
                    }
                }
                // The changes are those of the writes. If another program has changed the same
                // again, the next write waits for longer and longer.
                Ok(Looked::HasWritten) => {
                    writes += 1;
                    sleep((GATHER * (1 << writes.min(9))).min(LONGEST_PAUSE)).await;
                }
                // Also if something changes: the failed steps may be what changes it.
                Err(problem) => {
                    failures += 1;
                    if logged != [problem.as_str()] {
                        warn!(problem = &*shown(&problem), "the certificates cannot be kept");
                        logged = vec![problem];
                    }
                    sleep(Duration::from_secs(1 << failures.min(5)).min(LONGEST_PAUSE)).await;
                }
            }
            while changes.next().now_or_never().flatten().is_some() {}
        }
    }

    /// Reports each change of the objects that are kept; the caller reads them again.
    fn changes(&self) -> BoxStream<'static, ()> {
        let Settings { ca_secret, secret, configuration, .. } = &self.settings;
        let objects = [
            (ApiResource::erase::<Secret>(&()), Some(&self.namespace), ca_secret),
            (ApiResource::erase::<Secret>(&()), Some(&self.namespace), secret),
            (ApiResource::erase::<MutatingWebhookConfiguration>(&()), None, configuration),
            (ApiResource::erase::<ValidatingWebhookConfiguration>(&()), None, configuration),
        ];
        let changes = objects.map(|(kind, namespace, name)| {
            let api = match namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
                None => Api::<DynamicObject>::all_with(self.client.clone(), &kind),
            };
            let changes = watch_object(api, name).default_backoff();
            changes.filter_map(async |change| change.is_ok().then_some(())).boxed()
        });
        stream::select_all(changes).boxed()
    }

    /// Takes steps until none is left.
    ///
    /// # Errors
    /// A request that failed, or objects that change again and again.
    async fn look(&self, logged: &mut Vec<String>) -> Result<Looked, String> {
        for steps in 0..STEPS {
            let looked = if steps > 0 { Looked::HasWritten } else { Looked::Settled };
            let Some(found) = self.read().await? else { return Ok(looked) };
            if *logged != found.problems {
                for problem in &found.problems {
                    warn!(problem = &*shown(problem), "cannot be used");
                }
                logged.clone_from(&found.problems);
            }
            let now = self.clock.now();
            let Some(step) = authority::plan(&found.state, &self.settings.terms, now) else {
                if let Some(ca) = &found.state.ca {
                    self.metrics.set_certificate_expiry("ca", ca.span.not_after);
                }
                return Ok(looked);
            };
            self.carry_out(found, &step, now).await?;
        }
        Err("the Secrets or the webhook configurations change again and again".to_owned())
    }

    /// Reads everything; `None`: a Secret is not stowplan's.
    async fn read(&self) -> Result<Option<Found>, String> {
        let Settings { ca_secret, secret, service, .. } = &self.settings;
        let authority = self.get(&self.secrets(), ca_secret).await?;
        let serving = self.get(&self.secrets(), secret).await?;
        let found = [(ca_secret, Role::Authority, &authority), (secret, Role::Serving, &serving)];
        let foreign: Vec<&str> = found
            .into_iter()
            .filter(|(_, role, found)| found.as_ref().is_some_and(|secret| !role.owns(secret)))
            .map(|(name, ..)| name.as_str())
            .collect();
        self.report_foreign(&foreign);
        if !foreign.is_empty() {
            return Ok(None);
        }

        let mut problems = Vec::new();
        let mut configurations = Vec::new();
        for kind in CONFIGURATIONS {
            let name = &self.settings.configuration;
            let Some(object) = self.get(&path_of(kind), name).await? else { continue };
            configurations.push((kind, self.entries(&object)));
        }
        let mut ca = authority.as_ref().and_then(|secret| {
            let read = secrets::read_ca(secret);
            read.map_err(|problem| problems.push(format!("Secret {ca_secret}, ca.crt: {problem}")))
                .ok()
        });
        let mut certificates = Certificates::default();
        ca.iter().for_each(|ca| certificates.add_ca(ca));
        let entries = configurations.iter().flat_map(|(_, entries)| entries);
        let bundles: Vec<_> = entries.map(|entry| certificates.add_bundle(&entry.bundle)).collect();
        if let Some(KnownCa { ca, .. }) = &mut ca {
            ca.published_since = self.published_since(ca.id, &bundles);
        }
        let leaf = serving.as_ref().and_then(|secret| {
            let names = ServiceNames::new(service, &self.namespace);
            let (certificate, key) = secrets::read_pair(secret);
            let leaf = certificates.read_leaf(&certificate, &key, &names);
            leaf.map_err(|problem| {
                problems.push(format!("Secret {}: {problem}", self.settings.secret))
            })
            .ok()
        });
        let state = State { ca: ca.as_ref().map(|known| known.ca.clone()), leaf, bundles };
        Ok(Some(Found { authority, serving, configurations, ca, certificates, state, problems }))
    }

    /// Since when every caBundle has had the CA, as far as this process has seen.
    fn published_since(&self, ca: Id, bundles: &[BTreeSet<Id>]) -> Option<SystemTime> {
        let now = self.clock.now();
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if bundles.is_empty() || !bundles.iter().all(|bundle| bundle.contains(&ca)) {
            *published = None;
        } else if !published.is_some_and(|(id, since)| id == ca && since <= now) {
            *published = Some((ca, now));
        }
        published.map(|(_, since)| since)
    }

    /// The webhooks of a configuration that call the Service.
    fn entries(&self, configuration: &Value) -> Vec<Entry> {
        let webhooks = configuration["webhooks"].as_array().into_iter().flatten().enumerate();
        webhooks
            .filter(|(_, webhook)| {
                let service = &webhook["clientConfig"]["service"];
                service["name"] == *self.settings.service && service["namespace"] == *self.namespace
            })
            .map(|(index, webhook)| {
                let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
                let name = webhook["name"].as_str().unwrap_or_default().to_owned();
                Entry { index, name, bundle: BASE64.decode(bundle).unwrap_or_default() }
            })
            .collect()
    }

    fn report_foreign(&self, names: &[&str]) {
        let before = self.metrics.foreign_secrets.set(i64::try_from(names.len()).unwrap_or(0));
        for name in names {
            let note = format!(
                "Secret {}/{name} is not stowplan's (it has no label {}), so the webhook's \
                 certificate cannot be kept: delete it, or set tls.mode to provided and \
                 tls.secretName to the Secret with your certificate",
                self.namespace,
                secrets::ROLE
            );
            if before == 0 {
                error!("{note}");
            }
            let event = Event { warning: true, reason: "ForeignSecret", note };
            self.events.record_once(&self.settings.regarding, &event);
        }
    }

    async fn carry_out(&self, found: Found, step: &Step, now: SystemTime) -> Result<(), String> {
        let Settings { terms, secret, ca_secret, service, .. } = &self.settings;
        match step {
            Step::MakeCa => {
                let pair = issue::make_ca(now, terms.ca_lifetime)?;
                info!(secret = ca_secret, "making a new CA");
                let content = secrets::format_ca(&pair);
                self.write_secret(ca_secret, Role::Authority, found.authority, content).await
            }
            Step::Publish(ids) => {
                let bundle = BASE64.encode(found.certificates.format_bundle(ids));
                info!(certificates = ids.len(), "writing the caBundles");
                let mut bundles = found.state.bundles.iter();
                for (kind, entries) in found.configurations {
                    let stale = entries.iter().zip(&mut bundles);
                    let stale = stale.filter(|(_, present)| *present != ids);
                    self.publish(kind, stale.map(|(entry, _)| entry), &bundle).await?;
                }
                Ok(())
            }
            Step::Sign => {
                let ca = found.ca.ok_or("the CA that should sign is not there")?;
                let names = ServiceNames::new(service, &self.namespace);
                let pair = issue::sign(&ca, &names, now, terms.leaf_lifetime)?;
                info!(secret, "signing a new certificate");
                let content = secrets::format_serving(&pair, &ca);
                self.write_secret(secret, Role::Serving, found.serving, content).await
            }
        }
    }

    /// Writes the caBundle of some webhooks of a configuration.
    async fn publish(
        &self,
        kind: &'static str,
        entries: impl Iterator<Item = &Entry>,
        bundle: &str,
    ) -> Result<(), String> {
        let operations: Vec<_> = entries
            .flat_map(|Entry { index, name, .. }| {
                let index = &*index.to_string();
                let path = ["webhooks", index, "clientConfig", "caBundle"];
                [test(&["webhooks", index, "name"], json!(name)), add(&path, json!(bundle))]
            })
            .collect();
        if operations.is_empty() {
            return Ok(());
        }
        let parameters =
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::<()>::Json(json_patch::Patch(operations));
        let name = &self.settings.configuration;
        let request = Request::new(path_of(kind)).patch(name, &parameters, &patch);
        // 422 without causes: it was changed meanwhile, and a test fails.
        self.write(kind, "patch", &[404, 409, 422], request).await
    }

    /// Creates a Secret, or replaces the version that was read.
    async fn write_secret(
        &self,
        name: &str,
        role: Role,
        found: Option<Value>,
        content: Value,
    ) -> Result<(), String> {
        let parameters =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let request = Request::new(self.secrets());
        match found {
            Some(mut secret) => {
                secret["data"] = content;
                let body = secret.to_string().into_bytes();
                let request = request.replace(name, &parameters, body);
                self.write("secrets", "update", &[404, 409], request).await
            }
            None => {
                let secret = role.new_secret(&self.namespace, name, &content);
                let request = request.create(&parameters, secret.to_string().into_bytes());
                self.write("secrets", "create", &[409], request).await
            }
        }
    }

    /// Sends a write. If the object was changed meanwhile, everything is read again.
    ///
    /// # Errors
    /// The write was refused, or its outcome is not known.
    async fn write<E: ToString>(
        &self,
        kind: &'static str,
        verb: &'static str,
        conflicts: &[u16],
        request: Result<HttpRequest<Vec<u8>>, E>,
    ) -> Result<(), String> {
        let request = request.map_err(|error| error.to_string())?;
        // No await may come between this check and the request.
        if !self.leadership.is_held() {
            return Err("the lease is not held".to_owned());
        }
        let sent = self.send(request).await;
        let (outcome, result) = match sent {
            Err(problem) => ("unsure", Err(problem)),
            Ok((200..300, _)) => ("done", Ok(())),
            Ok((code, status)) if conflicts.contains(&code) && !is_invalid(code, &status) => {
                ("conflict", Ok(()))
            }
            Ok((code, status)) => ("refused", Err(format_refusal(verb, kind, code, &status))),
        };
        self.metrics.count_write(kind, verb, outcome);
        result
    }

    /// Reads an object; `None`: there is none.
    async fn get(&self, path: &str, name: &str) -> Result<Option<Value>, String> {
        let request = Request::new(path).get(name, &GetParams::default());
        match self.send(request.map_err(|error| error.to_string())?).await? {
            (200, object) => Ok(Some(object)),
            (404, _) => Ok(None),
            (code, status) => Err(format_refusal("get", path, code, &status)),
        }
    }

    /// Sends a request and notes the API server's time.
    async fn send(&self, request: HttpRequest<Vec<u8>>) -> Result<(u16, Value), String> {
        let (head, body) = super::send(&self.client, request, WRITE_TIMEOUT).await?;
        self.clock.observe(&head.headers);
        Ok((head.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default()))
    }

    fn secrets(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }
}

fn path_of(kind: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{kind}")
}

/// Returns true if the API server does not accept the object that the write would make.
fn is_invalid(code: u16, status: &Value) -> bool {
    code == 422 && status["details"]["causes"].as_array().is_some_and(|causes| !causes.is_empty())
}

fn format_refusal(verb: &str, what: &str, code: u16, status: &Value) -> String {
    let message = status["message"].as_str().unwrap_or_default();
    format!("{verb} {what}: {message} ({code})")
}
