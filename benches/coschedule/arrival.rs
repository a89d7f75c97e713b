//! What a load feels: pods per second until the last pod has its node, with everything at work: API
//! server, webhook, controller, the StatefulSet controller and the scheduler.
//!
//! Groups arrive at once, and without placeholders: their members are created, the controller creates
//! the placeholders, these are placed, and under `binding: node` the gates are removed. Once this is
//! measured from the first creation on, and once from the moment when all pods exist: until then the
//! scheduler and the StatefulSet controller are paused. Watches show when each step happened, and the
//! kernel which process needed how much processor time.

use std::array;
use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use stowplan::testing::systems::coschedule::keys::{MEMBER, PLACEHOLDER};
use testbed::control_plane::{ControlPlane, NodeSpec};
use tokio::time::{Instant, sleep};

use crate::Extent;
use crate::cluster::{Binding, CLASS, PLACED, SCHEDULER, Times, with_cluster};
use crate::plane::{CONTROLLER, Cluster, at_once};
use crate::process;
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

/// Whose pods arrive.
#[derive(Clone, Copy)]
struct Contender {
    label: &'static str,
    /// How its pods are bound to their placeholders; none, if they have no group.
    binding: Option<Binding>,
    /// The priority class of its placeholders.
    class: &'static str,
    /// Flags of the controller.
    flags: &'static [&'static str],
    /// Whether the placeholders have their nodes already.
    is_placed: bool,
}

const fn contender(label: &'static str, binding: Option<Binding>) -> Contender {
    Contender { label, binding, class: CLASS, flags: &[], is_placed: false }
}

const WITHOUT: Contender = contender("without a group", None);

const CONTENDERS: [Contender; 6] = [
    WITHOUT,
    Contender {
        class: "",
        ..contender("`binding: affinity`, without a priority class", Some(Binding::Affinity))
    },
    contender("`binding: affinity`", Some(Binding::Affinity)),
    Contender {
        flags: &["--writes-per-second=50"],
        ..contender("`binding: node`, `--writes-per-second=50`", Some(Binding::Node))
    },
    contender("`binding: node`", Some(Binding::Node)),
    Contender {
        is_placed: true,
        ..contender("`binding: node`, placeholders have nodes", Some(Binding::Node))
    },
];

/// Measures on a control plane of its own.
pub(crate) async fn measure(extent: Extent) -> anyhow::Result<()> {
    let nodes = NodeSpec::numbered(extent.nodes);
    let measured = with_cluster(nodes, extent.own_limits, async |cluster| {
        let mut measured = Vec::new();
        for start in [Start::AllCreated, Start::FirstCreation] {
            measured.push((start, rounds(cluster, extent, start).await?));
        }
        Ok(measured)
    });
    for (start, rounds) in measured.await? {
        print(extent, start, &rounds);
    }
    Ok(())
}

/// From when on is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    FirstCreation,
    /// All pods exist, and no placeholder has a pod.
    AllCreated,
}

impl Start {
    fn label(self) -> &'static str {
        match self {
            Self::FirstCreation => "from the first creation on",
            Self::AllCreated => "from when all pods exist on",
        }
    }
}

async fn rounds(
    cluster: &mut Cluster<'_>,
    extent: Extent,
    start: Start,
) -> anyhow::Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for number in 0..extent.rounds {
        let mut contenders = CONTENDERS;
        contenders.rotate_left(number % CONTENDERS.len());
        let mut round = Round::new();
        for contender in contenders {
            cluster.installation.stop_controller(CONTROLLER).await?;
            cluster.installation.set_controller_flags(contender.flags);
            cluster.start_controller().await?;
            cluster.installation.leader_known().await?;
            let bench = Bench { cluster, groups: extent.groups };
            round.insert(contender.label, turn(&bench, contender, start).await?);
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// The pods of a contender, from the first creation until each has its node and is deleted again.
async fn turn(bench: &Bench<'_>, contender: Contender, start: Start) -> anyhow::Result<Arrival> {
    let cluster = bench.cluster;
    if contender.is_placed {
        bench.gather().await?;
    }
    if let Some(binding) = contender.binding {
        cluster.bind_by(binding, contender.class).await?;
    }
    if start == Start::AllCreated {
        cluster.plane.pause(SCHEDULER).await?;
        cluster.plane.pause(CONTROLLER_MANAGER).await?;
    }
    let mut before = cluster.histogram(LIMIT_WAIT).await?;
    let mut busy = processor_times(cluster.plane);
    let watches = Watches::follow(cluster);
    let pods = bench.groups * SIZE;
    let is_grouped = contender.binding.is_some();
    let mut began = Instant::now();
    let each = (0..pods).map(|pod| bench.create(pod / SIZE, pod % SIZE, ARRIVING, is_grouped));
    at_once(each).await?;
    if start == Start::AllCreated {
        sleep(REST).await;
        before = cluster.histogram(LIMIT_WAIT).await?;
        busy = processor_times(cluster.plane);
        began = Instant::now();
        cluster.plane.resume(CONTROLLER_MANAGER)?;
        cluster.plane.resume(SCHEDULER)?;
    }
    cluster.are_placed(pods, &watches.placed).await?;
    let after = cluster.histogram(LIMIT_WAIT).await?;
    let mut used = processor_times(cluster.plane);
    for (process, seconds) in &mut used {
        *seconds -= busy.get(process).copied().unwrap_or_default();
    }

    let arriving = ListParams::default().labels(ARRIVING);
    if is_grouped {
        cluster.groups_are_together(&arriving, bench.groups).await?;
    }
    let listed = cluster.pods().list_metadata(&arriving).await?;
    let placeholder_of = |pod: &PartialObjectMeta<Pod>| pod.labels().get(MEMBER).cloned();
    let members = listed.iter().filter_map(|pod| Some((pod.name_any(), placeholder_of(pod)?)));
    let members: HashMap<String, String> = members.collect();
    let (rate, stages) = watches.read(&members, began);
    drop(watches);
    bench.delete(&arriving).await?;
    bench.disperse().await?;
    let written = array::from_fn(|index| after[index] - before[index]);
    let arrival = Arrival { rate, stages, written, used };
    eprintln!("{}, {}: {} pods/s", start.label(), contender.label, count(arrival.rate));
    Ok(arrival)
}

/// How many requests the controller has sent, and how many seconds its limit made all of them wait.
const LIMIT_WAIT: &str = "stowplan_controller_limit_wait_seconds";

/// The names of the processes, as the kernel cuts them, and as they are shown.
const PROCESSES: [(&str, &str); 7] = [
    ("kube-apiserver", "API server"),
    ("etcd", "etcd"),
    ("kube-scheduler", "scheduler"),
    ("kube-controller", "controller manager"),
    ("kwok", "kwok"),
    ("stowplan webhook", "webhook"),
    ("stowplan controller", "controller"),
];

/// The processor time of each process of a control plane, in seconds, and of this process.
fn processor_times(plane: &ControlPlane) -> HashMap<&'static str, f64> {
    let directory = plane.dir().display().to_string();
    let read = |pid: u32, file: &str| {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\0', " ")
    };
    let own = process::processor_time(std::process::id()).unwrap_or_default();
    let mut times = HashMap::from([(BENCH, own)]);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        let (name, command) = (read(pid, "comm"), read(pid, "cmdline"));
        if !command.contains(&directory) && !read(pid, "environ").contains(&directory) {
            continue;
        }
        let shown = PROCESSES.iter().find(|(process, _)| match process.split_once(' ') {
            Some((of, kind)) => name.trim() == of && command.contains(&format!(" {kind} ")),
            None => name.trim() == *process,
        });
        if let (Some((_, shown)), Ok(seconds)) = (shown, process::processor_time(pid)) {
            *times.entry(shown).or_default() += seconds;
        }
    }
    times
}

/// The bench itself: it creates the pods, watches them, and passes on the controller's requests.
const BENCH: &str = "bench";

/// What is watched: pods, and their placeholders.
struct Watches {
    created: Times,
    /// Their gates were removed: the controller wrote them.
    released: Times,
    placed: Times,
    sets: Times,
    set_pods: Times,
    set_placed: Times,
}

impl Watches {
    fn follow(cluster: &Cluster<'_>) -> Self {
        let pod_of_set = |pod: &PartialObjectMeta<Pod>| pod.labels().get(PLACEHOLDER).cloned();
        let released = |pod: &PartialObjectMeta<Pod>| {
            let mut managers = pod.managed_fields().iter().map(|of| of.manager.as_deref());
            managers.any(|of| of == Some(MANAGER)).then(|| pod.name_any())
        };
        Self {
            created: cluster.watch::<Pod>(ARRIVING, None, |pod| Some(pod.name_any())),
            released: cluster.watch(ARRIVING, None, released),
            placed: cluster.watch::<Pod>(ARRIVING, Some(PLACED), |pod| Some(pod.name_any())),
            sets: cluster.watch::<StatefulSet>(PLACEHOLDER, None, |set| Some(set.name_any())),
            set_pods: cluster.watch(PLACEHOLDER, None, pod_of_set),
            set_placed: cluster.watch(PLACEHOLDER, Some(PLACED), pod_of_set),
        }
    }

    /// Pods per second, and the stages, of pods with these placeholders.
    fn read(
        &self,
        members: &HashMap<String, String>,
        began: Instant,
    ) -> (f64, [Option<f64>; STAGES.len()]) {
        let Self { created, released, placed, sets, set_pods, set_placed } = self;
        let [created, released, placed, sets, set_pods, set_placed] =
            [created, released, placed, sets, set_pods, set_placed].map(|of| of.seen().clone());
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
}

/// The figures of one contender in one round.
struct Arrival {
    /// Pods per second, from the first creation until the last has its node.
    rate: f64,
    /// In milliseconds.
    stages: [Option<f64>; STAGES.len()],
    /// The requests of the controller, and how many seconds its limit made all of them wait.
    written: [f64; 2],
    /// The processor time of each process.
    used: HashMap<&'static str, f64>,
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

fn print(extent: Extent, start: Start, rounds: &[Round]) {
    let of = |contender: Contender| rounds.iter().map(move |round| &round[contender.label]);
    let load = format!(
        "{}, {} pods in {} groups, {} nodes; median of {} rounds",
        start.label(),
        count((extent.groups * SIZE) as f64),
        extent.groups,
        count(f64::from(extent.nodes)),
        rounds.len(),
    );
    let mut table = Table::new(
        "pods | pods/s | against without a group, same round | requests of the controller | \
         waited for its limit, ms each",
    );
    for contender in CONTENDERS {
        let spread_of = |value: fn(&Arrival) -> f64, shown: fn(f64) -> String| {
            spread(of(contender).map(value).collect(), shown)
        };
        let against = of(contender).zip(of(WITHOUT));
        let against = against.map(|(arrival, base)| arrival.rate / base.rate).collect();
        let figures = [
            spread_of(|of| of.rate, count),
            spread(against, ratio),
            spread_of(|of| of.written[0], count),
            spread_of(|of| of.written[1] / of.written[0].max(1.0) * 1e3, tenths),
        ];
        table.row(contender.label, figures);
    }
    table.print(&format!("Pods per second {load} (range)"));

    let median = |values: Vec<f64>, shown: fn(f64) -> String| {
        quantile(values, 0.5).map_or_else(|| "-".to_owned(), shown)
    };
    let mut table = Table::new(&format!("pods | {}", STAGES.join(" | ")));
    for contender in CONTENDERS {
        let stages = (0..STAGES.len())
            .map(|stage| median(of(contender).filter_map(|it| it.stages[stage]).collect(), count));
        table.row(contender.label, stages);
    }
    table.print(&format!("Milliseconds of each step, median of the groups or pods, {load}"));

    let processes: Vec<&str> = PROCESSES.iter().map(|(_, shown)| *shown).chain([BENCH]).collect();
    let mut table = Table::new(&format!("pods | {}", processes.join(" | ")));
    for contender in CONTENDERS {
        let used = |process: &&str| {
            let used = of(contender).filter_map(|arrival| arrival.used.get(process).copied());
            median(used.collect(), tenths)
        };
        table.row(contender.label, processes.iter().map(used));
    }
    table.print(&format!("Seconds of processor time, {load}"));
}
