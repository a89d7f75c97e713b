//! The six shapes of pods that share claims, and the course of each.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::disks::{Disks, Pod, State};

/// How long a pod may take to start before its set goes on without it: longer than a disk takes to be attached,
/// and to be detached elsewhere before.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a pod runs before the next step of its set.
const WORK: Duration = Duration::from_millis(200);

/// A step of a set.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// A pod starts that mounts these claims.
    Start(&'static str, &'static [&'static str]),
    /// A pod starts with an ephemeral volume of this name.
    StartOwning(&'static str, &'static str),
    End(&'static str),
}

/// A set of pods that share claims: what happens to it, one step after the other.
pub(crate) struct Shape {
    name: &'static str,
    /// The claims that exist before its pods; that of an ephemeral volume is named as its pod and volume.
    claims: &'static [&'static str],
    steps: &'static [Step],
}

/// One start of a pod.
pub(crate) struct Start {
    pub(crate) pod: String,
    /// How long a running pod had one of its disks on another node.
    pub(crate) behind_running: Duration,
    /// How long a disk was on another node after all pods there had begun to end.
    pub(crate) behind_detach: Duration,
    /// From its creation until it ran; `None`: it took longer than [`PATIENCE`].
    pub(crate) took: Option<Duration>,
}

use Step::{End, Start as Begin, StartOwning};

pub(crate) const SHAPES: [Shape; 6] = [
    Shape {
        name: "runner",
        claims: &[],
        steps: &[
            StartOwning("agent", "work"),
            Begin("job-1", &["agent-work"]),
            End("job-1"),
            Begin("job-2", &["agent-work"]),
            End("job-2"),
            End("agent"),
        ],
    },
    Shape {
        name: "steps",
        claims: &["source"],
        steps: &[
            Begin("a", &["source"]),
            Begin("b", &["source"]),
            End("a"),
            Begin("c", &["source"]),
            End("b"),
            End("c"),
        ],
    },
    Shape {
        name: "backup",
        claims: &["files"],
        steps: &[
            Begin("app", &["files"]),
            Begin("night-1", &["files"]),
            End("night-1"),
            Begin("night-2", &["files"]),
            End("night-2"),
            End("app"),
        ],
    },
    Shape {
        name: "rolling",
        claims: &["data"],
        steps: &[
            Begin("v1", &["data"]),
            Begin("v2", &["data"]),
            End("v1"),
            Begin("v3", &["data"]),
            End("v2"),
            End("v3"),
        ],
    },
    Shape {
        name: "two",
        claims: &["data", "log"],
        steps: &[
            Begin("both", &["data", "log"]),
            Begin("reader", &["data"]),
            Begin("shipper", &["log"]),
            End("both"),
            Begin("next", &["data", "log"]),
            End("reader"),
            End("shipper"),
            End("next"),
        ],
    },
    Shape {
        name: "ephemeral",
        claims: &[],
        steps: &[
            StartOwning("job", "scratch"),
            Begin("look", &["job-scratch"]),
            End("look"),
            End("job"),
        ],
    },
];

impl Shape {
    /// The number of pods that it starts.
    pub(crate) fn starts(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step, End(_))).count()
    }

    /// Plays one set of it.
    pub(crate) async fn play(&self, disks: &Disks<'_>, round: usize) -> anyhow::Result<Vec<Start>> {
        let own = |name: &str| format!("{}-{round}-{name}", self.name);
        for claim in self.claims {
            disks.create_claim(&own(claim)).await?;
        }
        let mut starts = Vec::new();
        for step in self.steps {
            match *step {
                Begin(name, claims) => {
                    let claims = claims.iter().map(|claim| own(claim)).collect();
                    starts.push(start(disks, Pod { name: own(name), claims, owned: None }).await?);
                }
                StartOwning(name, volume) => {
                    let claims = vec![format!("{}-{volume}", own(name))];
                    let owned = Some(volume);
                    starts.push(start(disks, Pod { name: own(name), claims, owned }).await?);
                }
                End(name) => disks.end(&own(name)).await?,
            }
        }
        Ok(starts)
    }
}

/// Creates a pod, and waits until it runs, or it has taken too long.
async fn start(disks: &Disks<'_>, pod: Pod) -> anyhow::Result<Start> {
    disks.create(&pod).await?;
    let begun = Instant::now();
    let (mut behind_running, mut behind_detach) = (Duration::ZERO, Duration::ZERO);
    let mut took = None;
    let mut last = begun;
    while begun.elapsed() < PATIENCE && took.is_none() {
        sleep(Duration::from_millis(50)).await;
        let now = Instant::now();
        match disks.state(&pod) {
            State::Started => took = Some(begun.elapsed()),
            State::BehindRunning => behind_running += now - last,
            State::BehindDetach => behind_detach += now - last,
            State::Other => {}
        }
        last = now;
    }
    sleep(WORK).await;
    Ok(Start { pod: pod.name, behind_running, behind_detach, took })
}
