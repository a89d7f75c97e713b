//! Addresses, and the devices and routes of namespaces. Namespaces are named by a process in them.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::command;

/// The bridge in the control plane's namespace: where the API server and the cluster's DNS are
/// reached by all, and the router between the nodes' pods.
pub(crate) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// This machine, as the control plane and the nodes see it.
const MACHINE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// All addresses of a cluster.
const ALL: &str = "198.18.0.0/15";

/// The addresses of Services: the first one, and the length of the prefix.
pub(crate) const SERVICES: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 64, 0), 20);

/// The device that joins this machine to the cluster.
const DEVICE: &str = "stowplan0";

/// The hardware address of the bridge. Without one of its own it has the lowest of its ports, so that
/// it would change with the loss of a node, and this machine would not reach it for half a minute.
const BRIDGE: &str = "02:00:5e:00:53:01";

/// A locally administered hardware address that no device has.
const NO_MACHINE: &str = "02:00:5e:00:53:00";

/// How long a process may take to enter its namespace.
const LIMIT: Duration = Duration::from_secs(30);

/// The address of node `number`, which counts from 1.
pub(crate) fn node(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, number + 10)
}

/// The range of the node's pods.
pub(crate) fn pods(number: u8) -> String {
    format!("198.19.{number}.0/24")
}

/// Makes the bridge in the namespace of process `control_plane`, and joins this machine to it.
pub(crate) fn set_up(control_plane: u32) -> Result<()> {
    wait_for_namespace(control_plane)?;
    disconnect()?;
    ip(
        None,
        &format!(
            "link add {DEVICE} type veth peer name machine netns {control_plane}\n\
             addr add {MACHINE}/24 dev {DEVICE}\n\
             link set {DEVICE} up\n"
        ),
    )?;
    ip(
        Some(control_plane),
        &format!(
            "link set lo up\n\
             link add nodes address {BRIDGE} type bridge\n\
             addr add {CONTROL_PLANE}/24 dev nodes\n\
             link set nodes up\n\
             route add {}/{} dev nodes\n\
             link set machine master nodes up\n",
            // kube-proxy replaces the address of a Service, once the packet has a route.
            SERVICES.0,
            SERVICES.1,
        ),
    )?;
    forward(control_plane)?;
    ip(None, &format!("route add {ALL} via {CONTROL_PLANE} dev {DEVICE}\n"))
        .with_context(|| format!("the addresses {ALL} are used by this machine"))
}

/// Removes this machine's device and, with it, the route. A namespace without processes may live on
/// for minutes, until its connections to nodes that were killed give up.
pub(crate) fn disconnect() -> Result<()> {
    if fs::exists(format!("/sys/class/net/{DEVICE}"))? {
        // It may end in this moment, with its namespace.
        let _ = ip(None, &format!("link delete {DEVICE}\n"));
    }
    Ok(())
}

/// Joins the namespace of process `process` to the bridge, as node `number`.
pub(crate) fn join(control_plane: u32, process: u32, number: u8) -> Result<()> {
    wait_for_namespace(process)?;
    let (device, address, pods) = (format!("node-{number}"), node(number), pods(number));
    // The device of a node that lost its power may still be there; its route goes with it only if
    // the address was the node's alone.
    let _ = ip(Some(control_plane), &format!("link delete {device}\n"));
    let _ = ip(Some(control_plane), &format!("neigh delete {address} dev nodes\n"));
    ip(
        Some(process),
        &format!(
            "link set lo up\n\
             link add eth0 type veth peer name {device} netns {control_plane}\n\
             addr add {address}/24 dev eth0\n\
             link set eth0 up\n\
             route add {ALL} via {CONTROL_PLANE} dev eth0\n"
        ),
    )?;
    ip(
        Some(control_plane),
        &format!(
            "link set {device} master nodes up\n\
             route replace {pods} via {address} dev nodes\n"
        ),
    )?;
    forward(process)
}

/// Takes the cable of node `number`, as a router sees it that has other machines behind it: packets
/// to the node are lost, without an answer. [`join`] puts it back.
pub(crate) fn cut(control_plane: u32, number: u8) -> Result<()> {
    ip(
        Some(control_plane),
        &format!(
            "link set node-{number} down\n\
             neigh replace {} lladdr {NO_MACHINE} dev nodes nud permanent\n",
            node(number),
        ),
    )
}

/// A command in the network namespace of `process`, and in no other namespace of it: `ip netns
/// exec` would hide the control groups.
pub(crate) fn within(process: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &process.to_string(), "--net", "--"]);
    command
}

fn forward(process: u32) -> Result<()> {
    let mut command = within(process);
    command.args(["/bin/sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]);
    command::run(&mut command).map(drop)
}

fn ip(process: Option<u32>, batch: &str) -> Result<()> {
    let mut command = process.map_or_else(|| Command::new("env"), within);
    command.args(["ip", "-batch", "-"]);
    let done = command::run_with(&mut command, batch.into());
    done.with_context(|| format!("cannot set up the network:\n{batch}")).map(drop)
}

/// Waits until `process` is in a network namespace of its own.
fn wait_for_namespace(process: u32) -> Result<()> {
    let machine = fs::read_link("/proc/self/ns/net")?;
    let end = Instant::now() + LIMIT;
    loop {
        match fs::read_link(format!("/proc/{process}/ns/net")) {
            Ok(namespace) if namespace != machine => return Ok(()),
            Ok(_) if Instant::now() < end => sleep(Duration::from_millis(5)),
            Ok(_) => bail!("process {process} is still in the network namespace of the machine"),
            Err(error) => return Err(error).context("it has ended"),
        }
    }
}
