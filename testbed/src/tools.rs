//! The programs of the control plane and of real nodes: built from Go modules once, then kept.
//!
//! `controlplane/go.mod` pins etcd, Kubernetes, kwok and helm by version, `go.sum` by content;
//! `controlplane-oldest/go.mod` does so for the oldest Kubernetes that stowplan serves, `nodes/go.mod` for
//! the kubelet, containerd, runc, the network plugins, kube-proxy and CoreDNS, `autoscaler/go.mod` for
//! Karpenter, `kueue/go.mod` for Kueue, and `tekton/go.mod` for Tekton Pipelines. They are compiled into
//! this crate, and their hash is the name of a folder in the cache, so a cached folder is always the right
//! one, whichever clone or branch asks, and outlives all of them.
//!
//! The cache is `$STOWPLAN_TESTBED_CACHE`, else `stowplan-testbed` in `$XDG_CACHE_HOME` or
//! `~/.cache`. The first build compiles Kubernetes: several minutes and about half a gigabyte for
//! the control plane, and as long again and about 300 megabytes for the nodes, and for the oldest
//! Kubernetes.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use self::build::{Recipe, Step, ensure_built, go, required_version};

use crate::command;

mod build;

const GO_MOD: &str = include_str!("../controlplane/go.mod");
const OLDEST_GO_MOD: &str = include_str!("../controlplane-oldest/go.mod");
const NODES_GO_MOD: &str = include_str!("../nodes/go.mod");
const AUTOSCALER_GO_MOD: &str = include_str!("../autoscaler/go.mod");
const KUEUE_GO_MOD: &str = include_str!("../kueue/go.mod");
const TEKTON_GO_MOD: &str = include_str!("../tekton/go.mod");

const CONTROL_PLANE: Recipe = Recipe {
    revision: 1,
    prefix: "",
    files: &[("go.mod", GO_MOD), ("go.sum", include_str!("../controlplane/go.sum"))],
    of: "the control plane",
    steps: &[Step { packages: &["tool"], tags: "", cgo: None }],
    programs: &[
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kwok",
        "helm",
    ],
    niceness: 0,
};

const OLDEST: Recipe = Recipe {
    revision: 1,
    prefix: "oldest-",
    files: &[("go.mod", OLDEST_GO_MOD), ("go.sum", include_str!("../controlplane-oldest/go.sum"))],
    of: "the oldest control plane",
    steps: &[Step { packages: &["tool"], tags: "", cgo: None }],
    programs: &["kube-apiserver", "kube-controller-manager", "kube-scheduler"],
    niceness: 0,
};

const NODES: Recipe = Recipe {
    revision: 1,
    prefix: "nodes-",
    files: &[
        ("go.mod", NODES_GO_MOD),
        ("go.sum", include_str!("../nodes/go.sum")),
        ("pause/main.go", include_str!("../nodes/pause/main.go")),
    ],
    of: "the programs of real nodes",
    steps: &[
        Step {
            packages: &[
                "./pause",
                "github.com/containerd/containerd/v2/cmd/containerd",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/ctr",
                "github.com/containernetworking/plugins/plugins/ipam/host-local",
                "github.com/containernetworking/plugins/plugins/main/bridge",
                "github.com/containernetworking/plugins/plugins/main/loopback",
                "github.com/coredns/coredns",
                "k8s.io/kubernetes/cmd/kube-proxy",
                "k8s.io/kubernetes/cmd/kubelet",
            ],
            tags: "",
            cgo: Some(false),
        },
        // It enters namespaces in C, before Go's runtime starts threads.
        Step { packages: &["github.com/opencontainers/runc"], tags: "seccomp", cgo: Some(true) },
    ],
    programs: &[
        "bridge",
        "containerd",
        "containerd-shim-runc-v2",
        "coredns",
        "ctr",
        "host-local",
        "kube-proxy",
        "kubelet",
        "loopback",
        "pause",
        "runc",
    ],
    // Two cores compile for minutes; whatever else runs comes first.
    niceness: 10,
};

const AUTOSCALER: Recipe = Recipe {
    revision: 1,
    prefix: "autoscaler-",
    files: &[("go.mod", AUTOSCALER_GO_MOD), ("go.sum", include_str!("../autoscaler/go.sum"))],
    of: "the autoscaler",
    steps: &[Step { packages: &["tool"], tags: "", cgo: Some(false) }],
    programs: &["karpenter"],
    niceness: 0,
};

const KUEUE: Recipe = Recipe {
    revision: 1,
    prefix: "kueue-",
    files: &[("go.mod", KUEUE_GO_MOD), ("go.sum", include_str!("../kueue/go.sum"))],
    of: "Kueue",
    steps: &[Step { packages: &["tool"], tags: "", cgo: Some(false) }],
    programs: &["kueue"],
    niceness: 10,
};

/// Its module.
const KUEUE_MODULE: &str = "sigs.k8s.io/kueue";

const TEKTON: Recipe = Recipe {
    revision: 1,
    prefix: "tekton-",
    files: &[("go.mod", TEKTON_GO_MOD), ("go.sum", include_str!("../tekton/go.sum"))],
    of: "Tekton Pipelines",
    steps: &[Step { packages: &["tool"], tags: "", cgo: Some(false) }],
    programs: &["controller", "entrypoint", "nop", "webhook"],
    niceness: 10,
};

/// Its module.
const TEKTON_MODULE: &str = "github.com/tektoncd/pipeline";

/// Tekton's manifests, as paths in its module: all but those of its resolvers and events. The webhooks are last,
/// because they have to answer as soon as they exist.
const MANIFESTS: [&str; 31] = [
    "config/100-namespace/100-namespace.yaml",
    "config/200-clusterrole.yaml",
    "config/200-role.yaml",
    "config/200-serviceaccount.yaml",
    "config/201-clusterrolebinding.yaml",
    "config/201-rolebinding.yaml",
    "config/300-crds/300-customrun.yaml",
    "config/300-crds/300-pipeline.yaml",
    "config/300-crds/300-pipelinerun.yaml",
    "config/300-crds/300-resolutionrequest.yaml",
    "config/300-crds/300-stepaction.yaml",
    "config/300-crds/300-task.yaml",
    "config/300-crds/300-taskrun.yaml",
    "config/300-crds/300-verificationpolicy.yaml",
    "config/clusterrole-aggregate-edit.yaml",
    "config/clusterrole-aggregate-view.yaml",
    "config/config-defaults.yaml",
    "config/config-events.yaml",
    "config/config-feature-flags.yaml",
    "config/config-info.yaml",
    "config/config-leader-election-controller.yaml",
    "config/config-leader-election-webhook.yaml",
    "config/config-logging.yaml",
    "config/config-observability.yaml",
    "config/config-registry-cert.yaml",
    "config/config-spire.yaml",
    "config/config-tracing.yaml",
    "config/config-wait-exponential-backoff.yaml",
    "config/controller.yaml",
    "config/webhook.yaml",
    "config/500-webhooks.yaml",
];

/// The definitions of Karpenter's kinds, as paths in its module.
const DEFINITIONS: [&str; 4] = [
    "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
    "pkg/apis/crds/karpenter.sh_nodeclaims.yaml",
    "pkg/apis/crds/karpenter.sh_nodeoverlays.yaml",
    "pkg/apis/crds/karpenter.sh_nodepools.yaml",
];

/// kwok's stages for nodes and pods, as paths in its module; without stages it does nothing.
const STAGES: [&str; 5] = [
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/fast/pod-complete.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
];

/// The Kubernetes that runs. etcd, kwok, kubectl and helm are the same beside both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kubernetes {
    /// The newest release that stowplan is tested with.
    #[default]
    Newest,
    /// The oldest release that stowplan serves.
    Oldest,
}

impl Kubernetes {
    /// The release that is built, such as `v1.36.3`.
    ///
    /// # Panics
    /// Never for the `go.mod` files of this crate (a test reads them).
    #[must_use]
    pub fn version(self) -> &'static str {
        let go_mod = match self {
            Self::Newest => GO_MOD,
            Self::Oldest => OLDEST_GO_MOD,
        };
        required_version(go_mod, "k8s.io/kubernetes").expect("go.mod requires k8s.io/kubernetes")
    }
}

/// The programs of a control plane, ready to run.
#[derive(Clone, Debug)]
pub struct Tools {
    dir: PathBuf,
    /// The programs of the oldest Kubernetes, which replace those of the same names.
    oldest: Option<PathBuf>,
}

impl Tools {
    /// Finds the programs in the cache, or builds them, telling `progress` line by line.
    ///
    /// Blocks; for minutes when it builds. Two processes that ask at once build once.
    ///
    /// # Errors
    /// Go is missing or older than `go.mod` asks for, the modules cannot be fetched, the disk is
    /// full. Nothing half-built is left in the cache.
    pub fn ensure(progress: &dyn Fn(&str)) -> Result<Self> {
        Self::ensure_of(Kubernetes::Newest, progress)
    }

    /// As [`Self::ensure`], with another Kubernetes, whose programs are built too.
    ///
    /// # Errors
    /// As for [`Tools::ensure`].
    pub fn ensure_of(kubernetes: Kubernetes, progress: &dyn Fn(&str)) -> Result<Self> {
        let finish = |module: &Path, programs: &Path| {
            // etcd's main package is called "server".
            fs::rename(programs.join("server"), programs.join("etcd"))?;
            let stages = documents(module, "sigs.k8s.io/kwok", &STAGES)?;
            Ok(fs::write(programs.join("stages.yaml"), stages)?)
        };
        let cache = cache()?;
        let dir = ensure_built(&CONTROL_PLANE, &cache, &finish, progress)?;
        let oldest = match kubernetes {
            Kubernetes::Newest => None,
            Kubernetes::Oldest => Some(ensure_built(&OLDEST, &cache, &|_, _| Ok(()), progress)?),
        };
        Ok(Self { dir, oldest })
    }

    /// The folder that holds them; those of another Kubernetes are in a folder beside it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// One program, by its usual name (`etcd`, `kube-apiserver`, `kubectl`, `helm`, …).
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        debug_assert!(CONTROL_PLANE.has(name), "{name} is not built");
        let oldest = self.oldest.as_ref().filter(|_| OLDEST.has(name));
        oldest.unwrap_or(&self.dir).join(name)
    }

    /// kwok's stages: nodes become Ready, pods Running, pods of Jobs Succeeded.
    #[must_use]
    pub fn stages(&self) -> PathBuf {
        self.dir.join("stages.yaml")
    }
}

/// The programs of a real node, and CoreDNS, ready to run.
#[derive(Clone, Debug)]
pub struct NodeTools {
    dir: PathBuf,
}

impl NodeTools {
    /// As [`Tools::ensure`], for the programs of nodes. The build needs a C compiler, `pkg-config`
    /// and the headers of libseccomp besides (runc); [`crate::real::check_build`] looks for them.
    ///
    /// # Errors
    /// As for [`Tools::ensure`].
    pub fn ensure(progress: &dyn Fn(&str)) -> Result<Self> {
        let cache = cache()?;
        if !cache.join(NODES.key()).is_dir() {
            crate::real::check_build()?;
        }
        let dir = ensure_built(&NODES, &cache, &|_, _| Ok(()), progress)?;
        Ok(Self { dir })
    }

    /// The folder that holds them. It is the `PATH` of a node.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// One program, by its usual name (`kubelet`, `containerd`, `coredns`, …).
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        debug_assert!(NODES.has(name), "{name} is not built");
        self.dir.join(name)
    }
}

/// Karpenter with its provider of simulated nodes, ready to run.
#[derive(Clone, Debug)]
pub struct AutoscalerTools {
    dir: PathBuf,
}

impl AutoscalerTools {
    /// As [`Tools::ensure`], for Karpenter.
    ///
    /// # Errors
    /// As for [`Tools::ensure`].
    pub fn ensure(progress: &dyn Fn(&str)) -> Result<Self> {
        let finish = |module: &Path, programs: &Path| {
            // The main package is called as its provider.
            fs::rename(programs.join("kwok"), programs.join("karpenter"))?;
            let definitions = documents(module, "sigs.k8s.io/karpenter", &DEFINITIONS)?;
            Ok(fs::write(programs.join("definitions.yaml"), definitions)?)
        };
        let dir = ensure_built(&AUTOSCALER, &cache()?, &finish, progress)?;
        Ok(Self { dir })
    }

    /// The release that is built, such as `v1.14.1`.
    ///
    /// # Panics
    /// Never for the `go.mod` of this crate (a test reads it).
    #[must_use]
    pub fn version() -> &'static str {
        required_version(AUTOSCALER_GO_MOD, "sigs.k8s.io/karpenter").expect("go.mod requires it")
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.dir.join("karpenter")
    }

    /// The definitions of its kinds.
    #[must_use]
    pub fn definitions(&self) -> PathBuf {
        self.dir.join("definitions.yaml")
    }
}

/// Kueue, ready to run.
#[derive(Clone, Debug)]
pub struct KueueTools {
    dir: PathBuf,
}

impl KueueTools {
    /// As [`Tools::ensure`], for Kueue.
    ///
    /// # Errors
    /// As for [`Tools::ensure`].
    pub fn ensure(progress: &dyn Fn(&str)) -> Result<Self> {
        let kubectl = Tools::ensure(progress)?.program("kubectl");
        let finish = |module: &Path, programs: &Path| {
            let mut kustomize = Command::new(&kubectl);
            kustomize
                .arg("kustomize")
                .arg(module_dir(module, KUEUE_MODULE)?.join("config/default"));
            let manifests = command::text(&mut kustomize).context("cannot make its manifests")?;
            Ok(fs::write(programs.join("manifests.yaml"), manifests)?)
        };
        let dir = ensure_built(&KUEUE, &cache()?, &finish, progress)?;
        Ok(Self { dir })
    }

    /// The release that is built, such as `v0.17.0`.
    ///
    /// # Panics
    /// Never for the `go.mod` of this crate (a test reads it).
    #[must_use]
    pub fn version() -> &'static str {
        required_version(KUEUE_GO_MOD, KUEUE_MODULE).expect("go.mod requires it")
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.dir.join("kueue")
    }

    /// The manifests of its objects, as its default installation has them.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests.yaml")
    }
}

/// Tekton Pipelines, ready to run in pods.
#[derive(Clone, Debug)]
pub struct TektonTools {
    dir: PathBuf,
}

impl TektonTools {
    /// As [`Tools::ensure`], for Tekton.
    ///
    /// # Errors
    /// As for [`Tools::ensure`].
    pub fn ensure(progress: &dyn Fn(&str)) -> Result<Self> {
        let finish = |module: &Path, programs: &Path| {
            let manifests = documents(module, TEKTON_MODULE, &MANIFESTS)?;
            Ok(fs::write(programs.join("manifests.yaml"), manifests)?)
        };
        let dir = ensure_built(&TEKTON, &cache()?, &finish, progress)?;
        Ok(Self { dir })
    }

    /// The release that is built, such as `v1.15.0`.
    ///
    /// # Panics
    /// Never for the `go.mod` of this crate (a test reads it).
    #[must_use]
    pub fn version() -> &'static str {
        required_version(TEKTON_GO_MOD, TEKTON_MODULE).expect("go.mod requires it")
    }

    /// One program: `controller`, `webhook`, `entrypoint`, or `nop`, which ends at once.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        debug_assert!(TEKTON.has(name), "{name} is not built");
        self.dir.join(name)
    }

    /// The manifests of its objects, with images that `ko` would build.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests.yaml")
    }
}

/// Writes a line of progress to standard error, past the capture of the test harness: a build of
/// minutes must not look like a hang.
pub fn to_stderr(line: &str) {
    let _ = writeln!(io::stderr(), "testbed: {line}");
}

/// The cache of this user.
pub(crate) fn cache() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = set("STOWPLAN_TESTBED_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("stowplan-testbed")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/stowplan-testbed")))
        .context("no place for the control plane's programs: set STOWPLAN_TESTBED_CACHE")?;
    // Programs are run from other working directories.
    std::path::absolute(&dir).with_context(|| format!("cannot use the cache {}", dir.display()))
}

/// Files of a module that `module` requires, as one file of YAML.
fn documents(module: &Path, of: &str, files: &[&str]) -> Result<String> {
    let dir = module_dir(module, of)?;
    let texts = files.iter().map(|file| {
        let path = dir.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    });
    Ok(texts.collect::<Result<Vec<_>>>()?.join("\n---\n"))
}

/// Returns the folder of a module that `module` requires.
fn module_dir(module: &Path, of: &str) -> Result<PathBuf> {
    let mut command = go(module);
    command.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", of]);
    let dir =
        command::text(&mut command).with_context(|| format!("cannot find the module {of}"))?;
    Ok(dir.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_name_their_versions() {
        let [oldest, newest] = [Kubernetes::Oldest, Kubernetes::Newest]
            .map(|release| build::numbers(&release.version()[1..]));
        assert_eq!((newest.len(), oldest.len()), (3, 3));
        assert!(oldest < newest, "{oldest:?} {newest:?}");
        let of_nodes = required_version(NODES_GO_MOD, "k8s.io/kubernetes");
        assert_eq!(of_nodes, Some(Kubernetes::Newest.version()));
        assert!(build::numbers(&AutoscalerTools::version()[1..]) >= vec![1, 14]);
        // The releases that docs/kueue.md and docs/tekton.md name as tested.
        assert_eq!(build::numbers(&KueueTools::version()[1..])[..2], [0, 17]);
        assert_eq!(build::numbers(&TektonTools::version()[1..])[..2], [1, 15]);
        for go_mod in [GO_MOD, NODES_GO_MOD, AUTOSCALER_GO_MOD, KUEUE_GO_MOD, TEKTON_GO_MOD] {
            assert!(build::numbers(build::directive(go_mod, "go").unwrap()) >= vec![1, 26]);
        }
    }
}
