//! Measures the latency for a user: how long the API server takes to create a pod, in variants that
//! follow each other round robin on one control plane, one request at a time.
//!
//! Each variant adds one thing to the one before, so that a difference has one cause. A namespace
//! selects the variant's webhook. The webhooks that only answer are registered as stowplan's is, and
//! reached through a Service, as stowplan's is. All pods are alike, and no scheduler looks at them:
//! placing them is not in the latency, and must not disturb it.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Request;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use stowplan_core::admission::{Review, answer, decide};
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::wait::until;
use testbed::workload;
use tokio::time::Instant;

use crate::answers::{UID, answer_of, patch_of};
use crate::plane::{self, Cluster, LIMIT, series, sum};
use crate::server;
use crate::table::{Table, quantile, ratio};

/// The namespace's label that selects a webhook.
const VARIANT: &str = "bench.stowplan.dev/variant";

/// stowplan's webhook for pods in its configuration.
const CONFIGURATION: &str = "stowplan";
const WEBHOOK: &str = "pods.stowplan.dev";

/// Rounds that are not counted: connections are opened, and programs warm up.
const WARM_UP: usize = 50;

/// How a pod is created.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
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

    /// The name of its namespace, its Service and its webhook.
    fn name(self) -> &'static str {
        TEXTS[self as usize][0]
    }

    fn label(self) -> &'static str {
        TEXTS[self as usize][1]
    }

    fn webhook(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Stowplan => Some(WEBHOOK.to_owned()),
            _ => Some(format!("{}.bench.stowplan.dev", self.name())),
        }
    }

    /// Has the API server admit its pod, without storing it.
    async fn try_pod(self, client: &Client) -> anyhow::Result<Pod> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), self.name());
        let pod = serde_json::from_value(pod("trial", self))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        Ok(pods.create(&dry_run, &pod).await?)
    }
}

/// Of each [`Variant`]: its name (all are equally long), its row, and what the difference to the
/// variant before is.
const TEXTS: [[&str; 3]; 6] = [
    ["latency-a", "(a) no webhook", ""],
    ["latency-b", "(b) constant webhook: one label", "a call"],
    ["latency-d", "(d) and stowplan's match conditions", "match conditions"],
    ["latency-f", "(f) and a patch of stowplan's size: labels", "size of the patch"],
    ["latency-e", "(e) and stowplan's own patch, recorded", "affinity instead of labels"],
    ["latency-c", "(c) stowplan", "stowplan itself"],
];

/// Measures on a control plane of its own.
pub(crate) async fn measure(pods: usize) -> anyhow::Result<()> {
    let options = Options { nodes: NodeSpec::numbered(10), ..Options::default() };
    plane::with_plane(options, async |plane| measure_on(plane, pods).await).await
}

async fn measure_on(plane: &ControlPlane, pods: usize) -> anyhow::Result<()> {
    let cluster = Cluster::new(plane, plane::install()).await?;
    let client = &cluster.client;
    for variant in Variant::ALL {
        workload::namespace(client, variant.name()).await?;
        let mut labels = json!({VARIANT: variant.name()});
        if variant != Variant::Stowplan {
            labels["stowplan.dev/ignore"] = json!("true");
        }
        let labels = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.patch(variant.name(), &PatchParams::default(), &labels).await?;
    }
    // The least that a patch can do.
    let label = answer_of(&json!([
        {"op": "add", "path": "/metadata/labels/bench.stowplan.dev~1seen", "value": "true"},
    ]));
    let review = start(&cluster, Variant::Constant, &label).await?;
    let recorded = recorded_answer(&review)?;
    let patch = patch_of(recorded.as_bytes())?.context("stowplan's answer has no patch")?;
    start(&cluster, Variant::Conditions, &label).await?;
    start(&cluster, Variant::Labels, &answer_of(&labels_of_size(patch.len()))).await?;
    start(&cluster, Variant::Recorded, &recorded).await?;
    check(client, &patch).await?;

    let mut series = Series::default();
    for round in 0..WARM_UP {
        series.round(client, &format!("warm-{round}")).await?;
    }
    series = Series::default();
    let before = calls(&cluster).await?;
    for round in 0..pods {
        plane.check()?;
        series.round(client, &format!("pod-{round}")).await?;
        if (round + 1) % 200 == 0 {
            eprintln!("latency: {} of {pods} rounds", round + 1);
        }
    }
    let after = calls(&cluster).await?;
    println!("\nstowplan's patch: {} bytes", patch.len());
    series.print(pods);
    let mut table = Table::new("what | count | calls a pod | mean, ms");
    for ((row, count, seconds), (_, of, earlier)) in after.iter().zip(&before) {
        let (count, seconds) = (count - of, seconds - earlier);
        ensure!(count > 0.0, "{row}: nothing was counted");
        let (a_pod, mean) = (ratio(count / pods as f64), seconds * 1e3 / count);
        table.row(row, [format!("{count:.0}"), a_pod, format!("{mean:.3}")]);
    }
    table.print("The same, as the API server and stowplan measure it");
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

/// Labels whose patch has so many bytes.
fn labels_of_size(bytes: usize) -> Value {
    const LONGEST: usize = 63;
    let label = |number: usize, length: usize| {
        json!({
            "op": "add", "path": format!("/metadata/labels/bench.stowplan.dev~1label-{number:02}"),
            "value": "x".repeat(length),
        })
    };
    // With a comma or a bracket.
    let least = label(0, 0).to_string().len() + 1;
    let count = bytes.div_ceil(least + LONGEST);
    let rest = bytes.saturating_sub(count * least);
    (0..count).map(|number| label(number, (rest + number) / count)).collect()
}

/// Returns stowplan's answer to this review in its own namespace. That the webhook gives it too is shown
/// by the pods ([`check`]).
fn recorded_answer(review: &[u8]) -> anyhow::Result<String> {
    let text = std::str::from_utf8(review)?;
    let text = text.replace(Variant::Constant.name(), Variant::Stowplan.name());
    let text = text.replace(uid_of(review)?, UID);
    let review = Review::parse(text.as_bytes())?;
    let decision = decide(&review, &View::default(), &Policy::default())?.at_once();
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
        seen.insert(variant, variant.try_pod(client).await?);
    }
    let labels = |variant| seen[&variant].metadata.labels.clone().unwrap_or_default();
    let affinity = |variant| seen[&variant].spec.as_ref().and_then(|spec| spec.affinity.clone());
    let of_size = labels_of_size(patch.len());
    let bytes = of_size.to_string().len();
    ensure!(bytes.abs_diff(patch.len()) < 64, "(f): {bytes} bytes instead of {}", patch.len());
    let of_size = of_size.as_array().map_or(0, Vec::len);
    for (variant, more) in Variant::ALL.into_iter().zip([0, 1, 1, of_size]) {
        let (found, wanted) = (labels(variant).len(), 3 + more);
        ensure!(found == wanted, "{}: {found} labels instead of {wanted}", variant.label());
    }
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

/// Starts the server of a variant that only answers, registers it with a copy of stowplan's webhook, and
/// waits until it is called. Returns a review that it has got.
async fn start(cluster: &Cluster<'_>, variant: Variant, answer: &str) -> anyhow::Result<Vec<u8>> {
    let (name, client) = (variant.name(), &cluster.client);
    let folder = cluster.plane.dir().join(name);
    fs::create_dir(&folder)?;
    let authority = server::write_certificate(&folder, &format!("{name}.{name}.svc"))?.pem();
    let listener = TcpListener::bind((service(client, name, 443).await?, 0))?;
    let port = listener.local_addr()?.port();
    service(client, name, port).await?;
    let parts: Vec<String> = answer.split(UID).map(str::to_owned).collect();
    let first = Arc::new(OnceLock::<Vec<u8>>::new());
    let seen = Arc::clone(&first);
    std::thread::spawn(move || {
        server::serve(listener, &folder, move |review| {
            seen.get_or_init(|| review.to_vec());
            Ok(parts.join(uid_of(review)?).into_bytes())
        })
    });

    let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let mut webhooks = all.get(CONFIGURATION).await?.webhooks.into_iter().flatten();
    let webhook = webhooks.find(|it| it.name == WEBHOOK).context("no webhook for pods")?;
    let mut webhook = serde_json::to_value(webhook)?;
    webhook["name"] = json!(variant.webhook());
    webhook["clientConfig"] = json!({
        "caBundle": STANDARD.encode(&authority),
        "service": {"name": name, "namespace": name, "path": "/mutate", "port": port},
    });
    webhook["namespaceSelector"] = json!({"matchLabels": {VARIANT: name}});
    if variant == Variant::Constant {
        webhook["matchConditions"] = Value::Null;
    }
    let configuration =
        serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": [webhook]}))?;
    all.create(&PostParams::default(), &configuration).await?;

    until(&format!("{} to be called", variant.label()), LIMIT, async || {
        cluster.plane.check()?;
        variant.try_pod(client).await?;
        Ok(first.get().cloned().ok_or("no review").into())
    })
    .await
}

/// Creates the Service of this name in the namespace of this name, or changes its port. Returns its
/// address.
async fn service(client: &Client, name: &str, port: u16) -> anyhow::Result<IpAddr> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"name": "https", "port": port}]},
    });
    let apply = PatchParams::apply("bench").force();
    let services: Api<Service> = Api::namespaced(client.clone(), name);
    let service = services.patch(name, &apply, &Patch::Apply(&service)).await?;
    let address = service.spec.and_then(|spec| spec.cluster_ip);
    Ok(address.context("a Service without an address")?.parse()?)
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
            let took = began.elapsed().as_secs_f64() * 1e3;
            self.0.entry(variant).or_default().push(took);
        }
        Ok(())
    }

    fn print(&self, pods: usize) {
        let mut table = Table::new(
            "variant | median, ms | p90, ms | p99, ms | median / (a) | median / (b) | \
             p99 / (b)",
        );
        let of = |variant, part| quantile(self.0[&variant].clone(), part).unwrap_or_default();
        for variant in Variant::ALL {
            let [median, p90, p99] = [0.5, 0.9, 0.99].map(|part| of(variant, part));
            let to_none = median / of(Variant::None, 0.5);
            let to_constant =
                [median / of(Variant::Constant, 0.5), p99 / of(Variant::Constant, 0.99)];
            let figures = [median, p90, p99, to_none].into_iter().chain(to_constant);
            table.row(variant.label(), figures.map(ratio));
        }
        table.print(&format!("Creation of a pod, at the client: {pods} of each, interleaved"));

        let mut table = Table::new(
            "what it is | from, to | difference of medians, ms | median of differences, ms | \
             of 95 %, ms",
        );
        let steps =
            Variant::ALL.windows(2).map(|pair| (pair[0], pair[1], TEXTS[pair[1] as usize][2]));
        let sums = [(Variant::Constant, Variant::Stowplan, "stowplan over the constant webhook")];
        for (from, to, what) in steps.chain(sums) {
            let pairs = self.0[&from].iter().zip(&self.0[&to]);
            let differences: Vec<f64> = pairs.map(|(from, to)| to - from).collect();
            // Where the median is with a probability of 95 %, whatever the distribution: by ranks.
            let reach = 0.98 / (differences.len() as f64).sqrt();
            let [low, median, high] = [0.5 - reach, 0.5, 0.5 + reach].map(|part| {
                let value = quantile(differences.clone(), part.clamp(0.0, 1.0));
                format!("{:+.3}", value.unwrap_or_default())
            });
            let letter = |variant: Variant| variant.label()[1..2].to_owned();
            let from_to = format!("{} to {}", letter(from), letter(to));
            let of_medians = format!("{:+.3}", of(to, 0.5) - of(from, 0.5));
            table.row(what, [from_to, of_medians, median, format!("{low} to {high}")]);
        }
        table.print("What the difference is made of");
    }
}

/// Returns the counts of the API server and stowplan until now: rows, each with a count and the seconds of
/// all.
async fn calls(cluster: &Cluster<'_>) -> anyhow::Result<Vec<(String, f64, f64)>> {
    let api = cluster.client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
    let admin = cluster.installation.admin_address();
    let ours = testbed::http::get(admin, "/metrics").await?.body;
    let mut rows = Vec::new();
    let mut add = |row: String, metrics: &str, name: &str, label: &str| {
        let [count, seconds] = ["count", "sum"].map(|of| {
            let mut series = series(metrics, &format!("{name}_{of}"));
            series.retain(|line| line.contains(label));
            sum(&series)
        });
        rows.push((row, count, seconds));
    };
    for variant in Variant::ALL {
        if let Some(webhook) = variant.webhook() {
            let name = "apiserver_admission_webhook_admission_duration_seconds";
            let row = format!("call of {}", variant.label());
            add(row, &api, name, &format!(r#"name="{webhook}""#));
        }
    }
    let conditions = "apiserver_admission_match_condition_evaluation_seconds";
    add("match conditions of a webhook".to_owned(), &api, conditions, "");
    let inside = "inside stowplan, from a request's head to its answer".to_owned();
    add(inside, &ours, "stowplan_admission_duration_seconds", "");
    Ok(rows)
}
