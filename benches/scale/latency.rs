//! What a user feels: how long the API server takes to create a pod, in variants that follow each
//! other round robin on one control plane, one request at a time.
//!
//! Each variant adds one thing to the one before, so that a difference has one cause. A namespace
//! selects the variant's webhook. The webhooks that only answer are registered as stowplan's is, and
//! reached through a Service, as stowplan's is. All pods are alike, and no scheduler looks at them:
//! placing them is not in the latency, and must not disturb it.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Request;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use stowplan::testing::admission::{Review, answer, decide};
use stowplan::testing::systems;
use stowplan::testing::systems::policy::Policy;
use testbed::control_plane::{ControlPlane, Installation, NodeSpec, Options};
use testbed::wait::{Seen, until};
use testbed::workload;
use tokio::time::Instant;

use crate::answers::{UID, answer_of, patch_of};
use crate::plane::{self, LIMIT};
use crate::server;
use crate::table::{Table, ratio};

/// The first argument of a copy of this program that serves a webhook.
pub(crate) const ROLE: &str = "role:constant";

/// The namespace's label that selects a webhook.
const VARIANT: &str = "bench.stowplan.dev/variant";

/// stowplan's webhook for pods in its configuration.
const CONFIGURATION: &str = "stowplan";
const WEBHOOK: &str = "pods.stowplan.dev";

/// Rounds that are not counted: connections are opened, and programs warm up.
const WARM_UP: usize = 50;

/// How a pod is created.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Variant {
    /// No webhook.
    None,
    /// A webhook that adds a label.
    Constant,
    /// Besides, with stowplan's match conditions.
    Conditions,
    /// Besides, its patch is as long as stowplan's, and has labels only.
    Labels,
    /// In place of that, stowplan's own patch, as it was recorded.
    Recorded,
    /// stowplan.
    Stowplan,
}

impl Variant {
    const ALL: [Self; 6] = [
        Self::None,
        Self::Constant,
        Self::Conditions,
        Self::Labels,
        Self::Recorded,
        Self::Stowplan,
    ];

    /// The name of its namespace, its Service and its webhook. All are equally long.
    fn name(self) -> &'static str {
        match self {
            Self::None => "latency-a",
            Self::Constant => "latency-b",
            Self::Stowplan => "latency-c",
            Self::Conditions => "latency-d",
            Self::Recorded => "latency-e",
            Self::Labels => "latency-f",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::None => "(a) no webhook",
            Self::Constant => "(b) constant webhook: one label",
            Self::Conditions => "(d) and stowplan's match conditions",
            Self::Labels => "(f) and a patch of stowplan's size: labels",
            Self::Recorded => "(e) and stowplan's own patch, recorded",
            Self::Stowplan => "(c) stowplan",
        }
    }

    /// What the difference to the variant before is.
    fn step(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Constant => "a call",
            Self::Conditions => "match conditions",
            Self::Labels => "size of the patch",
            Self::Recorded => "affinity instead of labels",
            Self::Stowplan => "stowplan itself",
        }
    }

    fn webhook(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Stowplan => Some(WEBHOOK.to_owned()),
            _ => Some(format!("{}.bench.stowplan.dev", self.name())),
        }
    }
}

/// Starts a control plane, measures on it, and stops it even after an error.
pub(crate) async fn measure(pods: usize) -> anyhow::Result<()> {
    let nodes = NodeSpec::numbered(10);
    let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await?;
    let measured = measure_on(&plane, pods).await;
    plane::stop(plane, measured.is_err()).await;
    measured
}

async fn measure_on(plane: &ControlPlane, pods: usize) -> anyhow::Result<()> {
    let installation = plane.install(plane::install()).await?;
    let client = plane.client().await?;
    for variant in Variant::ALL {
        workload::namespace(&client, variant.name()).await?;
        label_namespace(&client, variant).await?;
    }
    let mut webhooks = Webhooks::new(plane, client.clone()).await?;
    let review = webhooks.start(Variant::Constant, &answer_of(&one_label()), false).await?;
    let recorded = recorded_answer(&review)?;
    let patch = patch_of(&recorded)?.context("stowplan's answer has no patch")?;
    webhooks.start(Variant::Conditions, &answer_of(&one_label()), true).await?;
    webhooks.start(Variant::Labels, &answer_of(&labels_of_size(patch.len())), true).await?;
    webhooks.start(Variant::Recorded, &recorded, true).await?;
    check(&client, &patch).await?;

    let mut series = Series::default();
    for round in 0..WARM_UP {
        series.round(&client, &format!("warm-{round}")).await?;
    }
    series = Series::default();
    let before = Calls::read(&client, &installation).await?;
    for round in 0..pods {
        plane.check()?;
        series.round(&client, &format!("pod-{round}")).await?;
        if (round + 1) % 200 == 0 {
            eprintln!("latency: {} of {pods} rounds", round + 1);
        }
    }
    let calls = Calls::read(&client, &installation).await?.since(&before);
    println!(
        "\nstowplan's patch: {} bytes; a pod as it is sent: {} bytes; a review: {} bytes",
        patch.len(),
        pod("pod-0", Variant::None).to_string().len(),
        review.len(),
    );
    series.print(pods);
    calls.print(pods)
}

/// All but stowplan's own variant are outside of stowplan.
async fn label_namespace(client: &Client, variant: Variant) -> anyhow::Result<()> {
    let mut labels = json!({VARIANT: variant.name()});
    if variant != Variant::Stowplan {
        labels["stowplan.dev/ignore"] = json!("true");
    }
    let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(variant.name(), &PatchParams::default(), &change).await?;
    Ok(())
}

/// A pod of a Streams job: beside no pod of one group, and on the node of those of another.
fn pod(name: &str, variant: Variant) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": variant.name(),
            "labels": {"app": "streams", "streams.ibm.com/job": "trades", "streams.ibm.com/pe": "1"},
            "annotations": {
                "streams.ibm.com/host-colocation": "together",
                "streams.ibm.com/host-exlocation": "apart",
            },
        },
        "spec": {
            "schedulerName": "none",
            "containers": [{
                "name": "pe", "image": "example.com/streams/pe:7",
                "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
                "env": [{"name": "JOB", "value": "trades"}, {"name": "PE", "value": "1"}],
            }],
        },
    })
}

/// A label more, which is the least that a patch can do.
fn one_label() -> Value {
    json!([{"op": "add", "path": "/metadata/labels/bench.stowplan.dev~1seen", "value": "true"}])
}

/// Labels whose patch has so many bytes.
fn labels_of_size(bytes: usize) -> Value {
    const LONGEST: usize = 63;
    let label = |number: usize, length: usize| {
        json!({
            "op": "add", "path": format!("/metadata/labels/bench.stowplan.dev~1label-{number:02}"),
            "value": "x".repeat(length),
        })
    };
    let mut labels = Vec::new();
    loop {
        let number = labels.len();
        let length = |last: usize| {
            let all: Vec<_> = labels.iter().cloned().chain([label(number, last)]).collect();
            Value::from(all).to_string().len()
        };
        // The rest is the last label's, or what is left is too little for one more.
        if length(LONGEST) >= bytes {
            let last = LONGEST.saturating_sub(length(LONGEST) - bytes);
            labels.push(label(number, last.max(1)));
            return labels.into();
        }
        labels.push(label(number, LONGEST));
    }
}

/// What stowplan answers to this review in its own namespace. That the webhook does so too is shown
/// by the pods ([`check`]).
fn recorded_answer(review: &[u8]) -> anyhow::Result<String> {
    let text = std::str::from_utf8(review)?;
    let text = text.replace(Variant::Constant.name(), Variant::Stowplan.name());
    let text = text.replace(uid_of(review)?, UID);
    let review = Review::parse(text.as_bytes())?;
    let decision = decide(&review, &systems::view(), &Policy::default())?.at_once();
    Ok(String::from_utf8(answer::write(&review, &decision))?)
}

/// The uid of a review, which is near its beginning.
fn uid_of(review: &[u8]) -> anyhow::Result<&str> {
    const KEY: &[u8] = br#""uid":""#;
    let start = review.windows(KEY.len()).position(|window| window == KEY);
    let start = start.context("no uid")? + KEY.len();
    let uid = review.get(start..start + UID.len()).context("a short uid")?;
    Ok(std::str::from_utf8(uid)?)
}

/// Checks that each variant's pod is what its label says.
async fn check(client: &Client, patch: &[u8]) -> anyhow::Result<()> {
    let mut seen = HashMap::new();
    for variant in Variant::ALL {
        let pods: Api<Pod> = Api::namespaced(client.clone(), variant.name());
        let pod = serde_json::from_value(pod("check", variant))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        seen.insert(variant, pods.create(&dry_run, &pod).await?);
    }
    let labels = |variant| seen[&variant].metadata.labels.clone().unwrap_or_default();
    let affinity = |variant| seen[&variant].spec.as_ref().and_then(|spec| spec.affinity.clone());
    let sent = 3;
    ensure!(labels(Variant::None).len() == sent, "(a) is changed: {:?}", seen[&Variant::None]);
    for variant in [Variant::Constant, Variant::Conditions] {
        ensure!(labels(variant).len() == sent + 1, "{}: not called", variant.label());
    }
    let added = labels_of_size(patch.len());
    let bytes = added.to_string().len();
    ensure!(bytes.abs_diff(patch.len()) < 64, "(f): {bytes} bytes instead of {}", patch.len());
    let wanted = sent + added.as_array().map_or(0, Vec::len);
    ensure!(labels(Variant::Labels).len() == wanted, "{}: not called", Variant::Labels.label());
    let (ours, recorded) = (Variant::Stowplan, Variant::Recorded);
    ensure!(affinity(ours).is_some(), "stowplan has not changed the pod");
    ensure!(
        affinity(ours) == affinity(recorded)
            && labels(ours) == labels(recorded)
            && seen[&ours].metadata.annotations == seen[&recorded].metadata.annotations,
        "the recorded patch is not stowplan's: {:?} instead of {:?}",
        seen[&recorded],
        seen[&ours],
    );
    Ok(())
}

/// The webhooks that only answer.
struct Webhooks<'p> {
    plane: &'p ControlPlane,
    client: Client,
    /// stowplan's webhook, of which the others are copies.
    model: Value,
}

impl<'p> Webhooks<'p> {
    async fn new(plane: &'p ControlPlane, client: Client) -> anyhow::Result<Self> {
        let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let configuration = all.get(CONFIGURATION).await?;
        let mut webhooks = configuration.webhooks.into_iter().flatten();
        let model = webhooks.find(|it| it.name == WEBHOOK).context("no webhook for pods")?;
        Ok(Self { plane, client, model: serde_json::to_value(model)? })
    }

    /// Starts the server of a variant, registers it, and waits until it is called. Returns a review
    /// that it has got.
    async fn start(
        &mut self,
        variant: Variant,
        answer: &str,
        conditions: bool,
    ) -> anyhow::Result<Vec<u8>> {
        let folder = self.plane.dir().join(variant.name());
        fs::create_dir(&folder)?;
        let authority = write_certificate(&folder, &format!("{0}.{0}.svc", variant.name()))?;
        fs::write(folder.join("answer.json"), answer)?;
        let service = self.service(variant, 443).await?;
        let listening = self.serve(variant, service, &folder).await?;
        self.service(variant, listening.port()).await?;

        let mut webhook = self.model.clone();
        webhook["name"] = json!(variant.webhook());
        webhook["clientConfig"] = json!({
            "caBundle": STANDARD.encode(&authority),
            "service": {
                "name": variant.name(), "namespace": variant.name(), "path": "/mutate",
                "port": listening.port(),
            },
        });
        webhook["namespaceSelector"] = json!({"matchLabels": {VARIANT: variant.name()}});
        if !conditions {
            webhook["matchConditions"] = Value::Null;
        }
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": variant.name()}, "webhooks": [webhook],
        }))?;
        let all: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        all.create(&PostParams::default(), &configuration).await?;

        let pods: Api<Pod> = Api::namespaced(self.client.clone(), variant.name());
        let trial = serde_json::from_value(pod("trial", variant))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let file = folder.join("review.json");
        until(&format!("{} to be called", variant.label()), LIMIT, async || {
            self.plane.check()?;
            pods.create(&dry_run, &trial).await?;
            Ok(match fs::read(&file) {
                Ok(review) => Seen::Done(review),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
        .await
    }

    /// Creates the Service of a variant, or changes its port. Returns its address.
    async fn service(&self, variant: Variant, port: u16) -> anyhow::Result<IpAddr> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), variant.name());
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": variant.name()},
            "spec": {"ports": [{"name": "https", "port": port}]},
        });
        let apply = PatchParams::apply("bench").force();
        let service = services.patch(variant.name(), &apply, &Patch::Apply(&service)).await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip);
        Ok(address.context("a Service without an address")?.parse()?)
    }

    /// Starts a copy of this program as the server of a variant. It ends with the control plane.
    async fn serve(
        &self,
        variant: Variant,
        address: IpAddr,
        folder: &Path,
    ) -> anyhow::Result<SocketAddr> {
        let program = std::env::current_exe()?;
        let arguments = [ROLE.to_owned(), address.to_string(), folder.display().to_string()];
        let log = self.plane.start_program(variant.name(), &program, &arguments)?;
        until(&format!("{} to listen", variant.label()), LIMIT, async || {
            self.plane.check()?;
            let text = fs::read_to_string(&log)?;
            let line = text.lines().find_map(|line| line.strip_prefix("listening on https://"));
            Ok(match line.map(str::parse) {
                Some(Ok(address)) => Seen::Done(address),
                _ => Seen::NotYet(text),
            })
        })
        .await
    }
}

/// A certificate for this name in `folder`. Returns its authority, which is itself, as PEM.
fn write_certificate(folder: &Path, name: &str) -> anyhow::Result<String> {
    // ECDSA on P-256, as the chart makes them.
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new([name.to_owned()])?.self_signed(&key)?;
    fs::write(folder.join("tls.crt"), certificate.pem())?;
    fs::write(folder.join("tls.key"), key.serialize_pem())?;
    Ok(certificate.pem())
}

/// Serves the answer in a folder, with the uid of each review, until killed. Writes the first review
/// into the folder.
pub(crate) fn play(arguments: &[String]) -> anyhow::Result<()> {
    let [address, folder] = arguments else { bail!("{ROLE} ADDRESS FOLDER") };
    let folder = PathBuf::from(folder);
    let answer = fs::read_to_string(folder.join("answer.json"))?;
    let parts: Vec<String> = answer.split(UID).map(str::to_owned).collect();
    let first = std::sync::Once::new();
    let listen = SocketAddr::new(address.parse()?, 0);
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    server::serve(listen, &certificate, &key, move |review| {
        let answer = parts.join(uid_of(review)?).into_bytes();
        // Complete when it gets its name.
        first.call_once(|| {
            let part = folder.join("review.part");
            let written = fs::write(&part, review);
            let _ = written.and_then(|()| fs::rename(&part, folder.join("review.json")));
        });
        Ok(answer)
    })
}

/// The latencies of all variants, in milliseconds, in the order of the rounds.
#[derive(Default)]
struct Series(HashMap<Variant, Vec<f64>>);

impl Series {
    /// Creates a pod of each variant.
    async fn round(&mut self, client: &Client, name: &str) -> anyhow::Result<()> {
        let round = self.0.values().map(Vec::len).max().unwrap_or_default();
        for position in 0..Variant::ALL.len() {
            // Each is the first one as often as the others, and follows each.
            let turn = if round % 2 == 0 { position } else { Variant::ALL.len() - 1 - position };
            let variant = Variant::ALL[(turn + round / 2) % Variant::ALL.len()];
            let body = pod(name, variant).to_string().into_bytes();
            let path = format!("/api/v1/namespaces/{}/pods", variant.name());
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.body(body)?;
            let began = Instant::now();
            client.request_text(request).await.with_context(|| variant.label())?;
            let took = began.elapsed();
            self.0.entry(variant).or_default().push(milliseconds(took));
        }
        Ok(())
    }

    fn print(&self, pods: usize) {
        let mut table = Table::new(&[
            "variant",
            "median, ms",
            "p90, ms",
            "p99, ms",
            "median / (a)",
            "median / (b)",
            "p99 / (b)",
        ]);
        let of = |variant, part| quantile(&self.0[&variant], part);
        for variant in Variant::ALL {
            let [median, p90, p99] = [0.5, 0.9, 0.99].map(|part| of(variant, part));
            table.row([
                variant.label().to_owned(),
                ratio(median),
                ratio(p90),
                ratio(p99),
                ratio(median / of(Variant::None, 0.5)),
                ratio(median / of(Variant::Constant, 0.5)),
                ratio(p99 / of(Variant::Constant, 0.99)),
            ]);
        }
        table.print(&format!("Creation of a pod, at the client: {pods} of each, interleaved"));

        let mut table = Table::new(&[
            "what it is",
            "from, to",
            "difference of medians, ms",
            "median of differences, ms",
            "of 95 %, ms",
        ]);
        let steps = Variant::ALL.windows(2).map(|pair| (pair[0], pair[1], pair[1].step()));
        let sums = [(Variant::Constant, Variant::Stowplan, "stowplan over the constant webhook")];
        for (from, to, what) in steps.chain(sums) {
            let pairs = self.0[&from].iter().zip(&self.0[&to]);
            let differences: Vec<f64> = pairs.map(|(from, to)| to - from).collect();
            let (low, high) = interval_of_median(&differences);
            let letter = |variant: Variant| variant.label()[1..2].to_owned();
            table.row([
                what.to_owned(),
                format!("{} to {}", letter(from), letter(to)),
                signed(of(to, 0.5) - of(from, 0.5)),
                signed(quantile(&differences, 0.5)),
                format!("{} to {}", signed(low), signed(high)),
            ]);
        }
        table.print("What the difference is made of");
    }
}

/// What the API server and stowplan count of the calls, as sums.
struct Calls {
    /// By webhook: the calls, and their seconds as the API server sees them.
    webhooks: HashMap<String, (f64, f64)>,
    /// Evaluations of match conditions, and their seconds.
    conditions: (f64, f64),
    /// Reviews, and their seconds in stowplan from a request's head to its answer.
    inside: (f64, f64),
}

impl Calls {
    async fn read(client: &Client, installation: &Installation) -> anyhow::Result<Self> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let api = client.request_text(request).await?;
        let ours = testbed::http::get(installation.admin_address(), "/metrics").await?.body;
        let mut webhooks = HashMap::new();
        for variant in Variant::ALL {
            if let Some(webhook) = variant.webhook() {
                let labels = [format!(r#"name="{webhook}""#)];
                let name = "apiserver_admission_webhook_admission_duration_seconds";
                webhooks.insert(webhook, sums(&api, name, &labels));
            }
        }
        let name = "apiserver_admission_match_condition_evaluation_seconds";
        let conditions = sums(&api, name, &[]);
        let inside = sums(&ours, "stowplan_admission_duration_seconds", &[]);
        Ok(Self { webhooks, conditions, inside })
    }

    fn since(mut self, before: &Self) -> Self {
        let less = |(n, s): (f64, f64), (m, t): (f64, f64)| (n - m, s - t);
        for (webhook, sum) in &mut self.webhooks {
            *sum = less(*sum, before.webhooks[webhook]);
        }
        let (conditions, inside) =
            (less(self.conditions, before.conditions), less(self.inside, before.inside));
        Self { webhooks: self.webhooks, conditions, inside }
    }

    fn print(&self, pods: usize) -> anyhow::Result<()> {
        let mut table = Table::new(&["what", "count", "calls a pod", "mean, ms"]);
        let mut row = |label: &str, (count, seconds): (f64, f64)| {
            let mean = if count > 0.0 { seconds * 1e3 / count } else { 0.0 };
            table.row([
                label.to_owned(),
                format!("{count:.0}"),
                ratio(count / pods as f64),
                format!("{mean:.3}"),
            ]);
        };
        for variant in Variant::ALL {
            if let Some(webhook) = variant.webhook() {
                let sum = self.webhooks[&webhook];
                ensure!(sum.0 > 0.0, "{}: the API server counts no call", variant.label());
                row(&format!("call of {}", variant.label()), sum);
            }
        }
        row("match conditions of a webhook", self.conditions);
        row("inside stowplan, from a request's head to its answer", self.inside);
        table.print("The same, as the API server and stowplan measure it");
        Ok(())
    }
}

/// The count and the sum of a histogram, over all series with these labels.
fn sums(metrics: &str, name: &str, labels: &[String]) -> (f64, f64) {
    let of = |suffix: &str| {
        let lines =
            metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(suffix));
        lines
            .filter(|line| labels.iter().all(|label| line.contains(&**label)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    (of("_count"), of("_sum"))
}

fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // At least one round has been made.
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

/// Where the median is with a probability of 95 %, whatever the distribution: by ranks.
fn interval_of_median(values: &[f64]) -> (f64, f64) {
    let reach = 0.98 / (values.len() as f64).sqrt();
    (quantile(values, (0.5 - reach).max(0.0)), quantile(values, (0.5 + reach).min(1.0)))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn signed(value: f64) -> String {
    format!("{value:+.3}")
}
