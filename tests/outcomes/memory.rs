//! The memory of webhook and controller in a cluster with many and with large objects stays within
//! the limits of the chart: at the start, on a standby, and when all watches list again.
//!
//! Where it may create cgroups (as root, and the memory controller is delegated), each process is
//! in one with the limit of the chart. Everywhere its highest resident memory is compared with the
//! limit, which is stricter: that counts the pages of the program itself, too.

use std::collections::BTreeSet;

use testbed::control_plane::{ControlPlane, Install, Installation, NodeSpec, Options};
use testbed::proxy::{Fault, Proxy};
use testbed::{http, tekton, workload};

use crate::crowd::{CHART, Confined, Limits, memory_of};
use crate::world::settled;

pub(crate) async fn many_and_large_objects_fit_into_the_memory_limit() {
    let limits = Limits::of_chart().unwrap();
    let confined = Confined::new(env!("CARGO_BIN_EXE_stowplan"), limits).unwrap();
    eprintln!("in cgroups: {}", confined.has_groups());
    let nodes = NodeSpec::numbered(2);
    let plane = ControlPlane::start(Options { nodes, own_limits: true, ..Options::default() })
        .await
        .unwrap();
    let client = plane.client().await.unwrap();
    tekton::install(&client).await.unwrap();
    workload::namespace(&client, crate::crowd::NAMESPACE).await.unwrap();
    let install = Install::new(confined.program(), CHART).without_controller();
    let mut installation = plane.install(install).await.unwrap();
    // Pods are admitted without it, as they are written here.
    installation.stop_webhook().await.unwrap();
    crate::crowd::create(&client).await.unwrap();

    let of_webhook = plane.proxy().await.unwrap();
    let of_leader = plane.proxy().await.unwrap();
    let of_standby = plane.proxy().await.unwrap();
    installation.restart_webhook_through(&of_webhook).await.unwrap();
    installation.start_controller_through(0, &of_leader).await.unwrap();
    installation.leader_known().await.unwrap();
    installation.start_controller_through(1, &of_standby).await.unwrap();
    compare(&installation, limits, "after the start");

    futures::future::join_all([&of_webhook, &of_leader, &of_standby].map(list_again)).await;
    let controllers = [0, 1].map(|index| installation.controller_admin_address(index).unwrap());
    for address in [installation.admin_address()].into_iter().chain(controllers) {
        let status = async || Ok(http::get(address, "/readyz").await?.status);
        settled("the process to be ready again", status, |status| *status == 200).await.unwrap();
    }
    compare(&installation, limits, "after all watches have listed again");
    drop(installation);
    plane.stop().await;
}

/// Makes all watches of a process list again, as after a compaction, and waits until they have.
async fn list_again(proxy: &Proxy) {
    let watched = |proxy: &Proxy| -> Vec<String> {
        let calls = proxy.calls().into_iter().filter(|call| call.is_watch());
        calls.map(|call| call.path + "?" + selector(&call.query)).collect()
    };
    let all: BTreeSet<String> = watched(proxy).into_iter().collect();
    assert!(all.len() >= 8, "{all:?}");
    proxy.forget();
    let mut expired = BTreeSet::new();
    proxy.spoil_when(move |call| {
        let is_first =
            call.is_watch() && expired.insert(call.path.clone() + "?" + selector(&call.query));
        is_first.then_some(Fault::Gone)
    });
    proxy.cut_connections().await;
    let missing = async || {
        let watched = watched(proxy);
        let is_twice = |watch: &String| watched.iter().filter(|seen| *seen == watch).count() > 1;
        Ok(all.iter().filter(|watch| !is_twice(watch)).collect::<Vec<_>>())
    };
    // A megabyte of objects a page: on a busy machine that takes minutes, and each page is progress.
    let pages = || proxy.count_where(|call| call.query.contains("continue="));
    for _ in 0..5 {
        let before = pages();
        match settled("the watches that do not list again", missing, Vec::is_empty).await {
            Ok(_) => return proxy.heal(),
            Err(error) => assert!(pages() > before, "{error:#}"),
        }
    }
    panic!("a process lists its objects again and again");
}

/// The label selector in a query: two watches of one kind differ in it.
fn selector(query: &str) -> &str {
    query.split('&').find(|pair| pair.starts_with("labelSelector=")).unwrap_or_default()
}

/// Compares the highest resident memory of each process with its limit.
fn compare(installation: &Installation, limits: Limits, moment: &str) {
    let processes = [
        ("webhook", installation.webhook_process().unwrap(), limits.webhook),
        ("leader", installation.controller_process(0).unwrap(), limits.controller),
        ("standby", installation.controller_process(1).unwrap(), limits.controller),
    ];
    let peaks = processes.map(|(name, process, limit)| {
        let [peak, now, file] =
            ["VmHWM", "VmRSS", "RssFile"].map(|field| memory_of(process, field).unwrap());
        let [peak_mib, now, file] = [peak, now, file].map(|bytes| bytes / 1024 / 1024);
        eprintln!("{moment}, {name}: {peak_mib} MiB at most, now {now}, {file} of it of files");
        (name, peak, limit)
    });
    for (name, peak, limit) in peaks {
        assert!(peak < limit, "{moment}, {name}: {peak} bytes of {limit}");
    }
}
