//! Pools on a control plane: how long they take, what they cost the API server, and what the
//! controller holds.
//!
//! The proxy of [`crate::plane`] records the controller's requests; watches of an administrator,
//! which do not pass the proxy, show when a step is done.

use std::collections::HashSet;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::ensure;
use futures::StreamExt as _;
use hyper::Method;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use stowplan_core::api::condition::{READY, Status, find};
use stowplan_core::systems::streams::api::HostPool;
use stowplan_core::systems::streams::api::host_pool::{Exclusivity, MemberState};
use stowplan_core::systems::streams::kinds::host_pool::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use tokio::time::{Instant, sleep};

use crate::plane::{self, CONTROLLER, Cluster, LIMIT, NAMESPACE, at_once};
use crate::process::{mebibytes, memory};
use crate::table::{Table, count, ratio, tenths};
use crate::world::{self, SIZE, TAG, TAG_LABEL};

/// How long a step waits after the last change for superfluous writes.
const REST: Duration = Duration::from_secs(3);

/// How often a step checks, in memory, whether it is done.
const LOOK: Duration = Duration::from_millis(20);

/// Measures on a control plane of its own.
pub(crate) async fn measure(nodes: usize, pools: usize) -> anyhow::Result<()> {
    // Without nodes at first, to see what nodes add to the controller's memory.
    plane::with_plane(Options::default(), async |plane| measure_on(plane, nodes, pools).await).await
}

async fn measure_on(plane: &ControlPlane, nodes: usize, pools: usize) -> anyhow::Result<()> {
    let mut bench = Bench::start(plane, pools).await?;
    bench.remember("leading, without a node")?;
    let without = mebibytes(bench.process()?, "VmRSS")?;
    let tagged = NodeSpec::numbered(u16::try_from(nodes)?).into_iter();
    let tagged: Vec<_> = tagged.map(|node| node.label(TAG_LABEL, TAG)).collect();
    plane.add_nodes(&tagged).await?;
    sleep(REST).await;
    let shown = count(nodes as f64);
    bench.remember(&format!("{shown} nodes have joined"))?;
    let more = mebibytes(bench.process()?, "VmRSS")? - without;
    let a_node = more * f64::from(1 << 20) / nodes as f64;

    bench.create_all(pools).await?;
    bench.remember(&format!("{pools} pools are ready"))?;
    bench.lose_nodes(pools / 4).await?;
    bench.remember("each lost member is replaced")?;
    bench.start_anew().await?;
    bench.remember("started anew beside all that")?;
    bench.delete_all().await?;
    bench.remember("all pools are deleted")?;

    let Bench { times, requests, memory, .. } = bench;
    times.print(&format!("Pools of {SIZE} on {shown} nodes: seconds, and writes to objects"));
    requests.print("Requests of the controller, by kind (budget)");
    memory.print("Memory of `stowplan controller`");
    println!("\na node adds {} bytes to the resident memory", count(a_node));
    Ok(())
}

/// The patches of nodes and the writes of statuses that a step may cause.
type Budget = [usize; 2];

/// A control plane, and the figures measured on it.
struct Bench<'p> {
    cluster: Cluster<'p>,
    pools: Store<HostPool>,
    nodes: Store<Node>,
    times: Table,
    requests: Table,
    memory: Table,
}

impl<'p> Bench<'p> {
    /// Installs stowplan, and starts the controller behind the proxy.
    async fn start(plane: &'p ControlPlane, pools: usize) -> anyhow::Result<Self> {
        let exclusive = exclusive_of(pools) * SIZE;
        let install = plane::install()
            .value("policy.hostPools.maxExclusiveNodesPerNamespace", &exclusive.to_string());
        let mut cluster = Cluster::new(plane, install).await?;
        cluster.start_controller().await?;
        Ok(Self {
            pools: follow(Api::namespaced(cluster.client.clone(), NAMESPACE)),
            nodes: follow(Api::all(cluster.client.clone())),
            cluster,
            times: Table::new("step | first, s | all, s | writes | writes/s"),
            requests: Table::new(
                "step | node patches | status writes | other writes | lists of nodes, pods | \
                 lists of pools | plans | ms a plan",
            ),
            memory: Table::new("moment | resident, MiB | highest, MiB"),
        })
    }

    fn api(&self) -> Api<HostPool> {
        Api::namespaced(self.cluster.client.clone(), NAMESPACE)
    }

    /// Creates all pools at once, and waits until each is ready.
    async fn create_all(&mut self, pools: usize) -> anyhow::Result<()> {
        let exclusive = exclusive_of(pools);
        let label = format!("create {pools} pools, {exclusive} of them exclusive");
        let budget = [(pools + exclusive) * SIZE, 2 * pools];
        let api = self.api();
        let create = async |pool: usize| {
            let spec = serde_json::from_value(world::spec(pool))?;
            let pool = HostPool::new(&format!("pool-{pool}"), spec);
            api.create(&PostParams::default(), &pool).await?;
            Ok(())
        };
        let act = async || at_once((0..pools).map(create)).await;
        let done = |bench: &Self| bench.pools.state().iter().filter(|it| is_complete(it)).count();
        self.step(&label, budget, act, pools, done).await
    }

    /// Deletes a node of each of this many pools at once, and waits until each has another.
    async fn lose_nodes(&mut self, pools: usize) -> anyhow::Result<()> {
        let of_all = self.pools.state();
        let lost = of_all.iter().take(pools).filter_map(|pool| nodes_of(pool).next());
        let lost: HashSet<String> = lost.map(str::to_owned).collect();
        let has_lost = |pool: &HostPool| nodes_of(pool).any(|node| lost.contains(node));
        let affected: Vec<_> = of_all.iter().filter(|pool| has_lost(pool)).collect();
        ensure!(!affected.is_empty(), "no pool has a node to lose");
        let exclusivity = affected.iter().map(|pool| pool.spec.exclusivity);
        let exclusive = exclusivity.filter(|it| *it == Exclusivity::Exclusive).count();
        let names: HashSet<_> = affected.iter().map(|pool| pool.metadata.name.clone()).collect();
        let label = format!("lose {} nodes of {} pools", lost.len(), names.len());
        let budget = [names.len() + exclusive, 2 * names.len()];
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let done = |bench: &Self| {
            let of_all = bench.pools.state();
            let concerned = of_all.iter().filter(|pool| names.contains(&pool.metadata.name));
            concerned.filter(|pool| is_complete(pool) && !has_lost(pool)).count()
        };
        let act = async || delete_at_once(&nodes, &lost).await;
        self.step(&label, budget, act, names.len(), done).await
    }

    /// Stops the controller and starts another one, which finds nothing to do.
    async fn start_anew(&mut self) -> anyhow::Result<()> {
        self.cluster.installation.stop_controller(CONTROLLER).await?;
        self.cluster.proxy.forget();
        let began = Instant::now();
        self.cluster.start_controller().await?;
        let took = began.elapsed();
        self.end("start anew, until it leads", [0.0; 2], [took; 2], [0; 2]).await
    }

    /// Deletes all pools at once, and waits until no node carries a mark.
    async fn delete_all(&mut self) -> anyhow::Result<()> {
        let marked = self.marked();
        let names = self.pools.state().into_iter().filter_map(|pool| pool.metadata.name.clone());
        let names: HashSet<String> = names.collect();
        let label = format!("delete {} pools, {marked} nodes", names.len());
        let pools = self.api();
        let act = async || delete_at_once(&pools, &names).await;
        let done = |bench: &Self| marked.saturating_sub(bench.marked());
        self.step(&label, [marked, 0], act, marked, done).await
    }

    /// How many nodes carry a pool's label or taint.
    fn marked(&self) -> usize {
        self.nodes.state().iter().filter(|node| is_marked(node)).count()
    }

    /// Does something, waits until `done` returns `all`, and adds what it cost to the tables.
    async fn step(
        &mut self,
        label: &str,
        budget: Budget,
        act: impl AsyncFnOnce() -> anyhow::Result<()>,
        all: usize,
        done: impl Fn(&Self) -> usize,
    ) -> anyhow::Result<()> {
        self.cluster.proxy.forget();
        let before = self.cluster.planned().await?;
        let began = Instant::now();
        act().await?;
        let mut first = None;
        let took = loop {
            let done = done(self);
            let elapsed = began.elapsed();
            if done > 0 {
                first.get_or_insert(elapsed);
            }
            if done >= all {
                break [first.unwrap_or(elapsed), elapsed];
            }
            ensure!(elapsed < LIMIT, "{done} of {all} are done after {} s", LIMIT.as_secs());
            self.cluster.plane.check()?;
            sleep(LOOK).await;
        };
        self.end(label, before, took, budget).await
    }

    /// Adds the cost of a step to the tables, after a pause for late requests.
    async fn end(
        &mut self,
        label: &str,
        before: [f64; 2],
        took: [Duration; 2],
        budget: Budget,
    ) -> anyhow::Result<()> {
        sleep(REST).await;
        let [first, last] = took.map(|took| took.as_secs_f64());
        let proxy = &self.cluster.proxy;
        let writes = proxy.writes();
        let figures =
            [ratio(first), ratio(last), count(writes as f64), count(writes as f64 / last)];
        self.times.row(label, figures);
        let collection = "/apis/stowplan.dev/v1alpha1/hostpools";
        let status = "/apis/stowplan.dev/v1alpha1/namespaces/*/hostpools/*/status";
        // In the order of the budget.
        let seen = ["/api/v1/nodes/*", status].map(|path| proxy.count(&Method::PATCH, path));
        let against =
            |of: usize| format!("{} ({})", count(seen[of] as f64), count(budget[of] as f64));
        let after = self.cluster.planned().await?;
        let [plans, seconds] = [0, 1].map(|of| after[of] - before[of]);
        let lists = proxy.lists("/api/v1/nodes") + proxy.lists("/api/v1/pods");
        let figures = [
            against(0),
            against(1),
            count((writes - seen[0] - seen[1]) as f64),
            count(lists as f64),
            count(proxy.lists(collection) as f64),
            count(plans),
            if plans > 0.0 { tenths(seconds * 1e3 / plans) } else { "-".to_owned() },
        ];
        self.requests.row(label, figures);
        Ok(())
    }

    /// Adds the controller's memory at this moment to its table.
    fn remember(&mut self, moment: &str) -> anyhow::Result<()> {
        let figures = memory(self.process()?)?;
        self.memory.row(moment, figures);
        Ok(())
    }

    fn process(&self) -> anyhow::Result<u32> {
        self.cluster.installation.controller_process(CONTROLLER)
    }
}

/// How many of so many pools are exclusive.
fn exclusive_of(pools: usize) -> usize {
    (0..pools).filter(|pool| world::is_exclusive(*pool)).count()
}

/// The objects of a kind, kept up to date for as long as the runtime lasts.
fn follow<K>(api: Api<K>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let changes = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    tokio::spawn(changes.for_each(|_| async {}));
    store
}

/// Deletes the objects of these names, many at once.
async fn delete_at_once<K>(api: &Api<K>, names: &HashSet<String>) -> anyhow::Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    let delete = async |name: &String| {
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    };
    at_once(names.iter().map(delete)).await
}

/// Returns true if a pool is Ready with all of its members.
fn is_complete(pool: &HostPool) -> bool {
    let Some(status) = &pool.status else { return false };
    let ready = find(&status.conditions, READY).is_some_and(|it| it.status == Status::True);
    let members = status.members.iter().filter(|member| member.state == MemberState::Ready);
    ready && members.count() == SIZE
}

fn nodes_of(pool: &HostPool) -> impl Iterator<Item = &str> {
    let members = pool.status.iter().flat_map(|status| &status.members);
    members.filter_map(|member| member.node.as_deref())
}

fn is_marked(node: &Node) -> bool {
    let mut labels = node.metadata.labels.iter().flatten();
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    labels.any(|(key, _)| key.starts_with(POOL_LABEL_PREFIX))
        || taints.any(|taint| taint.key == EXCLUSIVE_TAINT)
}
