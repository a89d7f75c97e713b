//! The real nodes of a control plane: how they start, lose their power and come back.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::Api;
use tokio::task::JoinSet;

use super::certificates::Authority;
use super::{ControlPlane, is_ready};
use crate::real::network;
use crate::real::node::{Credentials, Node};
use crate::tools::NodeTools;
use crate::wait::{Seen, until};

/// Far above the usual time (15 seconds for three nodes), for machines that are busy.
const LIMIT: Duration = Duration::from_secs(300);

const COREDNS: &str = "coredns";
const KUBE_PROXY: &str = "kube-proxy";

/// A real node of a control plane.
#[derive(Debug)]
pub struct RealNode<'a> {
    plane: &'a ControlPlane,
    node: &'a Node,
    tools: &'a NodeTools,
}

impl RealNode<'_> {
    /// The name of its Node: `node-1`, …
    #[must_use]
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Cuts its power, and blocks until none of its processes runs any more, those of its pods
    /// included. Its Node becomes NotReady about 20 seconds later.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self) -> Result<()> {
        let killed = self.plane.processes().kill(self.name())?;
        killed.with_context(|| format!("{} does not run", self.name()))?;
        self.node.clean_up()
    }

    /// Takes its cable, and cuts its power: unlike after [`RealNode::kill`], no connection to it is
    /// closed or refused; packets are lost, as with a machine that another router leads to.
    ///
    /// # Errors
    /// It does not run.
    pub fn lose(&self) -> Result<()> {
        self.node.cut_off(self.plane.namespace()?)?;
        self.kill()
    }

    /// Starts it after [`RealNode::kill`] or [`RealNode::lose`], with the disk that it had. Blocks until
    /// it is connected; [`RealNode::ready`] waits for the rest.
    ///
    /// # Errors
    /// It runs, or it cannot be started.
    pub fn start(&self) -> Result<()> {
        ensure!(self.process().is_err(), "{} runs", self.name());
        let directory = &self.plane.directory;
        let (program, arguments) = self.node.first_process(self.tools, &directory.join("logs"))?;
        let log = directory.log(self.name());
        self.plane.processes().spawn(self.name(), &program, &arguments, &[], &log)?;
        self.node.join(self.plane.namespace()?, self.process()?)
    }

    /// Waits until it is Ready.
    ///
    /// # Errors
    /// It does not become so in time, or it has ended.
    pub async fn ready(&self) -> Result<()> {
        self.wait_for(true).await
    }

    /// Waits until its Node is NotReady, and has the taint that evicts pods.
    ///
    /// # Errors
    /// It does not become so in time.
    pub async fn not_ready(&self) -> Result<()> {
        self.wait_for(false).await
    }

    async fn wait_for(&self, ready: bool) -> Result<()> {
        let nodes: Api<ApiNode> = Api::all(self.plane.client().await?);
        let state = if ready { "Ready" } else { "NotReady" };
        until(&format!("{} to be {state}", self.name()), LIMIT, async || {
            self.plane.check()?;
            let Some(node) = nodes.get_opt(self.name()).await? else {
                return Ok(Seen::NotYet("it has not registered".to_owned()));
            };
            let evicts =
                node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| {
                    taint.key == "node.kubernetes.io/unreachable" && taint.effect == "NoExecute"
                });
            Ok(match (is_ready(&node), evicts) {
                (true, false) if ready => Seen::Done(()),
                (false, true) if !ready => Seen::Done(()),
                (found, evicts) => Seen::NotYet(format!("ready: {found}, evicts: {evicts}")),
            })
        })
        .await
    }

    /// A command that runs inside of the node, such as `ctr` or `runc`; its input is empty.
    ///
    /// # Errors
    /// The node does not run.
    pub fn command(&self, program: &str) -> Result<Command> {
        self.node.command(self.process()?, self.tools, program)
    }

    fn process(&self) -> Result<u32> {
        self.plane.processes().id(self.name())
    }
}

impl ControlPlane {
    /// Its real nodes, in order; none without [`super::Options::real`].
    #[must_use]
    pub fn real_nodes(&self) -> Vec<RealNode<'_>> {
        let Some(real) = &self.real else { return Vec::new() };
        let nodes = real.nodes.get().into_iter().flatten();
        nodes.map(|node| RealNode { plane: self, node, tools: &real.tools }).collect()
    }

    /// A real node by its name.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn real_node(&self, name: &str) -> Result<RealNode<'_>> {
        let found = self.real_nodes().into_iter().find(|node| node.name() == name);
        found.with_context(|| format!("no real node is called {name}"))
    }

    /// Imports an image archive ([`crate::image`]) on every real node, side by side, so that pods can
    /// use it.
    ///
    /// # Errors
    /// containerd does not take it, or a node does not run.
    pub async fn import(&self, archive: &Path) -> Result<()> {
        let mut imports = JoinSet::new();
        for node in self.real_nodes() {
            let process = node.process()?;
            let (node, tools) = (node.node.clone(), node.tools.clone());
            let archive = archive.to_owned();
            imports.spawn_blocking(move || node.import(process, &tools, &archive));
        }
        imports.join_all().await.into_iter().collect()
    }

    /// Starts the cluster's DNS and the nodes, and waits until all are Ready.
    pub(super) async fn start_real_nodes(&self, authority: &Authority) -> Result<()> {
        let Some(real) = &self.real else { return Ok(()) };
        let zones = format!(
            ".:53 {{\n  bind {}\n  errors\n  kubernetes cluster.local in-addr.arpa {{\n    \
             kubeconfig {}\n    ttl 1\n  }}\n}}\n",
            network::CONTROL_PLANE,
            self.kubeconfig.display(),
        );
        let zones = self.directory.write("Corefile", &zones)?;
        let arguments = ["-conf".to_owned(), zones.display().to_string()];
        self.spawn_program(COREDNS, &real.tools.program(COREDNS), &arguments)?;

        let proxy = authority.client("system:kube-proxy", None)?;
        let proxy = self.kubeconfig_for(authority, "system:kube-proxy", &proxy);
        let nodes = (1..=real.options.count)
            .map(|number| {
                let user = format!("system:node:node-{number}");
                let client = authority.client(&user, Some("system:nodes"))?;
                let credentials = Credentials {
                    authority: &self.certificate("ca.crt"),
                    kubelet: &self.kubeconfig_for(authority, &user, &client),
                    proxy: &proxy,
                };
                Node::create(self.dir(), number, &real.tools, &credentials)
            })
            .collect::<Result<Vec<_>>>()?;
        if real.nodes.set(nodes).is_err() {
            bail!("the real nodes were started before");
        }
        for node in self.real_nodes() {
            node.start()?;
        }
        // The API server reaches webhooks by their Services, as on a node of a control plane.
        let proxy = self.directory.write("certificates/kube-proxy.kubeconfig", &proxy)?;
        let arguments = [
            "--proxy-mode=nftables".to_owned(),
            format!("--kubeconfig={}", proxy.display()),
            // The node here is the machine of the control plane, which has no Node. The first one
            // serves: only the addresses of NodePorts depend on it.
            "--hostname-override=node-1".to_owned(),
            format!("--bind-address={}", network::CONTROL_PLANE),
            "--conntrack-max-per-core=0".to_owned(),
        ];
        self.spawn_program(KUBE_PROXY, &real.tools.program(KUBE_PROXY), &arguments)?;
        for archive in &real.options.images {
            self.import(archive).await?;
        }
        for node in self.real_nodes() {
            node.ready().await?;
        }
        Ok(())
    }

    /// Kills the real nodes: nothing on them needs an orderly end.
    pub(super) fn end_real_nodes(&self) {
        for node in self.real_nodes() {
            // One that does not run has nothing to end.
            let _ = self.processes().kill(node.name());
        }
    }
}
