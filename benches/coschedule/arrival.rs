//! Measures a load: pods per second until the last pod has its node, with everything at work: API
//! server, webhook, controller, the StatefulSet controller and the scheduler.
//!
//! Groups arrive at once, and without placeholders: their members are created, the controller creates
//! the placeholders, these are placed, and the gates are removed. Once this is
//! measured from the first creation on, and once from the moment when all pods exist: until then the
//! scheduler and the StatefulSet controller are paused. Watches show when each step happened, and the
//! kernel which process needed how much processor time.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use stowplan_core::systems::coschedule::keys::{MEMBER, PLACEHOLDER};
use testbed::control_plane::NodeSpec;
use tokio::time::{Instant, sleep};

use crate::Extent;
use crate::cluster::{Binding, CLASS, PLACED, SCHEDULER, Times, with_cluster};
use crate::plane::{CONTROLLER, Cluster, at_once};
use crate::process::processor_time;
use crate::schedule::{Bench, SIZE};
use crate::table::{Table, count, quantile, ratio, spread, tenths};

/// The label of the pods that arrive.
const ARRIVING: &str = "bench=arriving";

/// The field manager of the controller's writes.
const MANAGER: &str = "stowplan-controller";

/// The StatefulSet controller is one of its controllers.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Before paused processes go on: until others have done what the pods made them do.
const REST: Duration = Duration::from_secs(3);

/// The pods that arrive: their row; how they are bound to their placeholders, none if they have no
/// group; the priority class of the placeholders; flags of the controller; and whether the placeholders
/// have their nodes already.
type Contender = (&'static str, Option<Binding>, &'static str, &'static [&'static str], bool);

/// The limit of a controller that writes less often than by default.
const SLOW: &[&str] = &["--writes-per-second=50"];

const WITHOUT: Contender = ("without a group", None, CLASS, &[], false);

const CONTENDERS: [Contender; 6] = [
    WITHOUT,
    ("`binding: affinity`, without a priority class", Some(Binding::Affinity), "", &[], false),
    ("`binding: affinity`", Some(Binding::Affinity), CLASS, &[], false),
    ("`binding: node`, `--writes-per-second=50`", Some(Binding::Node), CLASS, SLOW, false),
    ("`binding: node`", Some(Binding::Node), CLASS, &[], false),
    ("`binding: node`, placeholders have nodes", Some(Binding::Node), CLASS, &[], true),
];

/// From when on is measured, as titles say it.
const FIRST_CREATION: &str = "from the first creation on";
/// No placeholder has a pod then.
const ALL_CREATED: &str = "from when all pods exist on";

/// Measures on a control plane of its own.
pub(crate) async fn measure(extent: Extent) -> anyhow::Result<()> {
    let nodes = NodeSpec::numbered(extent.nodes);
    let measured = with_cluster(nodes, extent.own_limits, async |cluster| {
        let mut measured = Vec::new();
        for start in [ALL_CREATED, FIRST_CREATION] {
            let mut rounds = Vec::new();
            for number in 0..extent.rounds {
                let mut contenders = CONTENDERS;
                contenders.rotate_left(number % CONTENDERS.len());
                let mut round = Round::new();
                for contender in contenders {
                    let (label, _, _, flags, _) = contender;
                    cluster.installation.stop_controller(CONTROLLER).await?;
                    cluster.installation.set_controller_flags(flags);
                    cluster.start_controller().await?;
                    cluster.installation.leader_known().await?;
                    let bench = Bench { cluster, groups: extent.groups };
                    round.insert(label, turn(&bench, contender, start).await?);
                }
                rounds.push(round);
            }
            measured.push((start, rounds));
        }
        Ok(measured)
    });
    for (start, rounds) in measured.await? {
        print(extent, start, &rounds);
    }
    Ok(())
}

/// The pods of a contender, from the first creation until each has its node and is deleted again.
async fn turn(bench: &Bench<'_>, contender: Contender, start: &str) -> anyhow::Result<Arrival> {
    let (label, binding, class, _, is_placed) = contender;
    let cluster = bench.cluster;
    if is_placed {
        bench.gather().await?;
    }
    if let Some(binding) = binding {
        cluster.bind_by(binding, class).await?;
    }
    if start == ALL_CREATED {
        cluster.plane.pause(SCHEDULER).await?;
        cluster.plane.pause(CONTROLLER_MANAGER).await?;
    }
    let mut before = spent(cluster).await?;
    let watches = follow(cluster);
    let pods = bench.groups * SIZE;
    let is_grouped = binding.is_some();
    let mut began = Instant::now();
    let each = (0..pods).map(|pod| bench.create(pod / SIZE, pod % SIZE, ARRIVING, is_grouped));
    at_once(each).await?;
    if start == ALL_CREATED {
        sleep(REST).await;
        before = spent(cluster).await?;
        began = Instant::now();
        cluster.plane.resume(CONTROLLER_MANAGER)?;
        cluster.plane.resume(SCHEDULER)?;
    }
    let [placed, ..] = &watches;
    cluster.are_placed(pods, placed).await?;
    let after = spent(cluster).await?;

    let arriving = ListParams::default().labels(ARRIVING);
    if is_grouped {
        cluster.groups_are_together(&arriving, bench.groups).await?;
    }
    let listed = cluster.pods().list_metadata(&arriving).await?;
    let placeholder_of = |pod: &PartialObjectMeta<Pod>| pod.labels().get(MEMBER).cloned();
    let members = listed.iter().filter_map(|pod| Some((pod.name_any(), placeholder_of(pod)?)));
    let (rate, stages) = read(&watches, &members.collect(), began);
    drop(watches);
    bench.delete(&arriving).await?;
    bench.disperse().await?;
    let spent = after.into_iter().zip(before).map(|(after, before)| after - before).collect();
    eprintln!("{start}, {label}: {} pods/s", count(rate));
    Ok(Arrival { rate, stages, spent })
}

/// How many requests the controller has sent, and how many seconds its limit made all of them wait.
const LIMIT_WAIT: &str = "stowplan_controller_limit_wait_seconds";

/// The names of the processes in the table of the run directory, and as they are shown.
const PROCESSES: [(&str, &str); 7] = [
    ("kube-apiserver", "API server"),
    ("etcd", "etcd"),
    ("kube-scheduler", "scheduler"),
    ("kube-controller-manager", "controller manager"),
    ("kwok", "kwok"),
    ("webhook", "webhook"),
    ("controller-0", "controller"),
];

/// Returns the costs until now: requests of the controller, the seconds that its limit made all of them
/// wait, and the processor time of each of [`PROCESSES`] and of this bench, which creates the pods,
/// watches them, and passes on the controller's requests.
async fn spent(cluster: &Cluster<'_>) -> anyhow::Result<Vec<f64>> {
    let mut spent = cluster.histogram(LIMIT_WAIT).await?.to_vec();
    // Its lines are `name pid start-time`.
    let table = std::fs::read_to_string(cluster.plane.dir().join("pids"))?;
    for (name, _) in PROCESSES {
        let rest = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (pid, _) =
            rest.and_then(|it| it.split_once(' ')).with_context(|| format!("no {name}"))?;
        spent.push(processor_time(pid.parse()?)?);
    }
    spent.push(processor_time(std::process::id())?);
    Ok(spent)
}

/// Watches pods and their placeholders: when pods were placed, created, and written by the controller,
/// which removes their gates; and when StatefulSets and their pods were there, and these were placed.
fn follow(cluster: &Cluster<'_>) -> [Times; 6] {
    let name = |pod: &PartialObjectMeta<Pod>| Some(pod.name_any());
    let pod_of_set = |pod: &PartialObjectMeta<Pod>| pod.labels().get(PLACEHOLDER).cloned();
    let released = |pod: &PartialObjectMeta<Pod>| {
        let mut managers = pod.managed_fields().iter().map(|of| of.manager.as_deref());
        managers.any(|of| of == Some(MANAGER)).then(|| pod.name_any())
    };
    [
        cluster.watch(ARRIVING, Some(PLACED), name),
        cluster.watch(ARRIVING, None, name),
        cluster.watch(ARRIVING, None, released),
        cluster.watch::<StatefulSet>(PLACEHOLDER, None, |set| Some(set.name_any())),
        cluster.watch(PLACEHOLDER, None, pod_of_set),
        cluster.watch(PLACEHOLDER, Some(PLACED), pod_of_set),
    ]
}

/// Pods per second, and the stages, of pods with these placeholders.
fn read(
    watches: &[Times; 6],
    members: &HashMap<String, String>,
    began: Instant,
) -> (f64, [Option<f64>; STAGES.len()]) {
    let [placed, created, released, sets, set_pods, set_placed] =
        watches.each_ref().map(|of| of.seen().clone());
    let mut first: HashMap<String, Instant> = HashMap::new();
    // When a member and the node of its placeholder were there.
    let mut woken: HashMap<String, Instant> = HashMap::new();
    for (pod, placeholder) in members {
        let Some(at) = created.get(pod) else { continue };
        let known = first.entry(placeholder.clone()).or_insert(*at);
        *known = (*at).min(*known);
        woken.insert(pod.clone(), *set_placed.get(placeholder).unwrap_or(at).max(at));
    }
    // What was there before took no time, and paused processes had no turn.
    let median = |from: &HashMap<String, Instant>, to: &HashMap<String, Instant>| {
        let took = from.iter().filter_map(|(name, from)| {
            Some(to.get(name)?.saturating_duration_since(*from.max(&began)))
        });
        quantile(took.map(|took| took.as_secs_f64() * 1e3).collect(), 0.5)
    };
    let stages = [
        median(&first, &sets),
        median(&sets, &set_pods),
        median(&set_pods, &set_placed),
        median(&woken, &released),
        median(&released, &placed),
        median(&created, &placed),
    ];
    let last = placed.values().max().unwrap_or(&began);
    (created.len() as f64 / (*last - began).as_secs_f64(), stages)
}

/// The figures of one contender in one round.
struct Arrival {
    /// Pods per second, from the first creation until the last has its node.
    rate: f64,
    /// In milliseconds.
    stages: [Option<f64>; STAGES.len()],
    /// As [`spent`] lists it.
    spent: Vec<f64>,
}

type Round = HashMap<&'static str, Arrival>;

/// The steps from a pod to its node, of each group or of each pod. Medians.
const STAGES: [&str; 6] = [
    "first pod → StatefulSet",
    "→ its pod",
    "→ its node",
    "→ gate removed (woken)",
    "→ pod's node",
    "pod → its node",
];

fn print(extent: Extent, start: &str, rounds: &[Round]) {
    let of = |label: &'static str| rounds.iter().map(move |round| &round[label]);
    let load = format!(
        "{start}, {} pods in {} groups, {} nodes; median of {} rounds",
        count((extent.groups * SIZE) as f64),
        extent.groups,
        count(f64::from(extent.nodes)),
        rounds.len(),
    );
    let mut table = Table::new(
        "pods | pods/s | against without a group, same round | requests of the controller | \
         waited for its limit, ms each",
    );
    for (label, ..) in CONTENDERS {
        let spread_of = |value: fn(&Arrival) -> f64, shown: fn(f64) -> String| {
            spread(of(label).map(value).collect(), shown)
        };
        let against = of(label).zip(of(WITHOUT.0));
        let against = against.map(|(arrival, base)| arrival.rate / base.rate).collect();
        let figures = [
            spread_of(|of| of.rate, count),
            spread(against, ratio),
            spread_of(|of| of.spent[0], count),
            spread_of(|of| of.spent[1] / of.spent[0].max(1.0) * 1e3, tenths),
        ];
        table.row(label, figures);
    }
    table.print(&format!("Pods per second {load} (range)"));

    let median = |values: Vec<f64>, shown: fn(f64) -> String| {
        quantile(values, 0.5).map_or_else(|| "-".to_owned(), shown)
    };
    let mut table = Table::new(&format!("pods | {}", STAGES.join(" | ")));
    for (label, ..) in CONTENDERS {
        let stages = (0..STAGES.len())
            .map(|stage| median(of(label).filter_map(|it| it.stages[stage]).collect(), count));
        table.row(label, stages);
    }
    table.print(&format!("Milliseconds of each step, median of the groups or pods, {load}"));

    let mut table = Table::new(&format!("pods | {} | bench", PROCESSES.map(|of| of.1).join(" | ")));
    for (label, ..) in CONTENDERS {
        let used = (2..PROCESSES.len() + 3)
            .map(|process| median(of(label).map(|it| it.spent[process]).collect(), tenths));
        table.row(label, used);
    }
    table.print(&format!("Seconds of processor time, {load}"));
}
