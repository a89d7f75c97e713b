//! The state of one cluster: its workloads and pods, its hosts, and what is wrong. The controller, `check`
//! and `plan` derive the same from it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::config::{self, Domain, Host};
use super::keys;
use super::kinds::pod::MpiPod;
use super::kinds::workload::Workload;
use super::policy::Mpi;
use super::request::{Implementation, Role};
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::view::resource::STATEFUL_SET;
use crate::view::{Name, Resource};

/// A cluster, derived from a View.
#[derive(Debug)]
pub(super) struct Cluster<'v> {
    /// Its namespace and name.
    pub name: Name,
    /// By kind and name.
    pub workloads: Vec<(&'v Name, &'v Workload)>,
    /// By name.
    pub pods: Vec<(&'v Name, &'v MpiPod)>,
    policy: &'v Policy,
}

/// A worker that the workloads promise.
#[derive(Debug)]
pub(crate) struct Worker<'c, 'v> {
    /// The workload that makes it.
    pub workload: (&'v Name, &'v Workload),
    pub host: &'c Host,
    /// Its pod, if there is one.
    pub pod: Option<(&'v Name, &'v MpiPod)>,
    /// True if its name has a DNS record.
    pub has_record: bool,
}

impl Worker<'_, '_> {
    /// Returns true if the launcher can reach it.
    pub(crate) fn is_reachable(&self) -> bool {
        self.has_record && self.is_ready()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.pod.is_some_and(|(_, pod)| pod.ready && !pod.identity.deleting)
    }
}

/// The reason why a cluster does not start. The text continues "the cluster does not start: ".
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Problem {
    /// No workload makes workers.
    NoWorkers,
    /// A workload is there and makes none: clean-up leaves a StatefulSet like that.
    ScaledToZero { resource: Resource, workload: Name, annotated: Option<u32> },
    /// A Job of workers makes none until it is resumed: clean-up leaves it like that.
    Suspended { job: Name },
    /// The workloads make another number of workers than an annotation says.
    Differs { annotated: u32, found: u32 },
    /// A Job does not run all of its workers at once.
    NotAtOnce { job: Box<str>, parallelism: u32, completions: u32 },
    /// No ConfigMap can have a hostfile of this length.
    TooLong { bytes: usize, hosts: usize },
}

impl Problem {
    /// The reason of the event, a stable word.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NoWorkers | Self::ScaledToZero { .. } | Self::Suspended { .. } => {
                reason::NO_WORKERS
            }
            Self::Differs { .. } => reason::WORKERS_DIFFER,
            Self::NotAtOnce { .. } => reason::WORKERS_NOT_AT_ONCE,
            Self::TooLong { .. } => reason::HOSTFILE_TOO_LONG,
        }
    }

    /// A remedy.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::NoWorkers => format!(
                "create a StatefulSet or an Indexed Job whose pod template has the cluster's name in {} and {}: worker",
                keys::CLUSTER,
                keys::ROLE
            ),
            Self::ScaledToZero { resource, workload, annotated } if *resource == STATEFUL_SET => {
                let Name { namespace, name } = workload;
                let (count, more) = match annotated {
                    Some(annotated) => (*annotated, ""),
                    None => (1, ": or more, as many workers as the launcher shall use"),
                };
                format!("kubectl scale statefulset {name} -n {namespace} --replicas={count}{more}")
            }
            Self::ScaledToZero { .. } => {
                "create the Job again with completionMode: Indexed and its completions".to_owned()
            }
            Self::Suspended { job: Name { namespace, name } } => format!(
                "unless a queue resumes it: kubectl patch job {name} -n {namespace} -p '{{\"spec\":{{\"suspend\":false}}}}'"
            ),
            Self::Differs { found, .. } => {
                format!(
                    "scale the workers, or write {}: \"{found}\" on all pod templates",
                    keys::WORKERS
                )
            }
            Self::NotAtOnce { completions, .. } => format!("set parallelism to {completions}"),
            Self::TooLong { .. } => {
                "use fewer workers with more slots, or shorter names".to_owned()
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWorkers => {
                formatter.write_str("no workload of the namespace makes its workers")
            }
            Self::ScaledToZero { resource, workload, .. } => {
                let why = match *resource == STATEFUL_SET {
                    true => "is scaled to 0",
                    false => "has no completions, or is not Indexed",
                };
                write!(formatter, "{} {} makes no workers: it {why}", resource.kind, workload.name)
            }
            Self::Suspended { job } => write!(formatter, "Job {} is suspended", job.name),
            Self::Differs { annotated, found } => write!(
                formatter,
                "the annotation {} says {annotated}, and the workloads make {found}",
                keys::WORKERS
            ),
            Self::NotAtOnce { job, parallelism, completions } => write!(
                formatter,
                "Job {job} runs {parallelism} of its {completions} workers at once, so they are never all ready"
            ),
            Self::TooLong { bytes, hosts } => write!(
                formatter,
                "the files for {hosts} hosts have at least {bytes} bytes, and a ConfigMap has at most {}",
                config::MOST_BYTES
            ),
        }
    }
}

/// The reasons of events.
pub(crate) mod reason {
    /// A launcher has no workers.
    pub(crate) const NO_WORKERS: &str = "NoWorkers";
    /// The annotation `workers` and the workloads differ.
    pub(crate) const WORKERS_DIFFER: &str = "WorkersDiffer";
    /// `parallelism` is below `completions`.
    pub(crate) const WORKERS_NOT_AT_ONCE: &str = "WorkersNotAtOnce";
    /// The hostfile does not fit into a ConfigMap.
    pub(crate) const HOSTFILE_TOO_LONG: &str = "HostfileTooLong";
    /// Two launchers of a cluster are no retries of one Job.
    pub(crate) const SEVERAL_LAUNCHERS: &str = "SeveralLaunchers";
    /// The node of a StatefulSet's worker is NotReady.
    pub(crate) const WORKER_LOST: &str = "WorkerLost";
    /// The API server refuses an object of the cluster, mostly because another one has its name.
    pub(crate) const OBJECT_NOT_MADE: &str = "ObjectNotMade";
    /// Workers are Ready and have no DNS names.
    pub(crate) const NO_DNS_NAMES: &str = "NoDnsNames";
    /// The Secret was deleted and is made again.
    pub(crate) const KEY_REPLACED: &str = "KeyReplaced";
    /// The workers of a cluster are Ready.
    pub(crate) const WORKERS_READY: &str = "WorkersReady";
    /// The workers were stopped after the launcher's end.
    pub(crate) const WORKERS_STOPPED: &str = "WorkersStopped";
    /// The gate was removed although the workers are not Ready.
    pub(crate) const GATE_LIFTED: &str = "GateLifted";
}

impl<'v> Cluster<'v> {
    pub(crate) fn new(name: Name, view: &'v View, policy: &'v Policy) -> Self {
        let mut workloads = view.workloads_of_cluster(&name);
        workloads.retain(|(_, of)| !of.identity.deleting);
        let pods = view.pods_of_cluster(&name);
        Self { name, workloads, pods, policy }
    }

    fn mpi(&self) -> &'v Mpi {
        &self.policy.mpi
    }

    /// The workloads of a role.
    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = (&'v Name, &'v Workload)> {
        self.workloads.iter().copied().filter(move |(_, of)| of.request.role == role)
    }

    /// The launcher that decides how the cluster is used: one that has not ended, if there is one.
    pub(crate) fn launcher(&self) -> Option<(&'v Name, &'v Workload)> {
        let going = self.of_role(Role::Launcher).find(|(_, of)| !of.is_over);
        going.or_else(|| self.of_role(Role::Launcher).next())
    }

    fn implementation(&self) -> Implementation {
        let first = self.launcher().or_else(|| self.of_role(Role::Worker).next());
        first.map(|(_, of)| of.request.implementation).unwrap_or_default()
    }

    /// Where its DNS names are.
    pub(crate) fn domain(&self) -> Domain<'_> {
        Domain { namespace: &self.name.namespace, domain: &self.mpi().cluster_domain }
    }

    /// The hosts in the order of the hostfile: a launcher that is a host too, then the workers of each
    /// workload by their index.
    ///
    /// # Errors
    /// If they are so many that no ConfigMap can have their names.
    pub(crate) fn hosts(&self) -> Result<Vec<Host>, Problem> {
        self.check_count()?;
        let mut hosts = Vec::new();
        let launcher = self.launcher();
        if let Some((_, launcher)) = launcher.filter(|(_, of)| of.request.launcher_as_worker) {
            let hostname = launcher.hostname.as_deref().map(str::to_owned);
            hosts.push(Host {
                hostname: hostname.unwrap_or_else(|| keys::launcher(&self.name.name)),
                service: self.service(launcher),
                slots: launcher.request.slots.unwrap_or(1),
                port: None,
            });
        }
        let slots = launcher.and_then(|(_, of)| of.request.slots).unwrap_or(1);
        for (name, workers) in self.of_role(Role::Worker) {
            let (service, port) = (self.service(workers), workers.port(self.policy));
            let slots = workers.request.slots.unwrap_or(slots);
            let indexes = (workers.first..).take(workers.count.unwrap_or_default() as usize);
            hosts.extend(indexes.map(|index| Host {
                hostname: hostname(name, index),
                service: service.clone(),
                slots,
                port: Some(port),
            }));
        }
        Ok(hosts)
    }

    /// Checks the number of workers before anything is built for each of them: replicas are a number that
    /// any user can write.
    fn check_count(&self) -> Result<(), Problem> {
        let (mut bytes, mut hosts) = (0_usize, 0_usize);
        for (name, workers) in self.of_role(Role::Worker) {
            let count = workers.count.unwrap_or_default() as usize;
            let host = Host {
                hostname: hostname(name, workers.first),
                service: self.service(workers),
                slots: 1,
                port: None,
            };
            // Each name is in two files.
            let shortest = self.domain().name_of(&host).len() * 2;
            bytes = bytes.saturating_add(count.saturating_mul(shortest));
            hosts = hosts.saturating_add(count);
        }
        if bytes > config::MOST_BYTES {
            return Err(Problem::TooLong { bytes, hosts });
        }
        Ok(())
    }

    fn service(&self, workload: &Workload) -> String {
        workload.subdomain.as_deref().unwrap_or(&self.name.name).to_owned()
    }

    /// The workloads whose pods have their names in a Service of the author's, which nothing makes but the
    /// author.
    pub(crate) fn elsewhere(&self) -> impl Iterator<Item = (&'v Name, &'v Workload, &'v str)> {
        let all = self.workloads.iter();
        all.filter(|(_, of)| !of.is_of_job_set)
            .filter_map(|(name, of)| Some((*name, *of, of.subdomain.as_deref()?)))
            .filter(|(_, _, service)| *service != &*self.name.name)
    }

    /// Returns what to do about a worker without a DNS record.
    pub(crate) fn record_remedy(&self, worker: &Worker<'_, '_>) -> String {
        let (service, (name, of)) = (&worker.host.service, worker.workload);
        let Name { namespace, name: own } = &self.name;
        if **service != **own && !of.is_of_job_set {
            return format!(
                "create {} {} again with {}: {own}, the Service that stowplan makes; or make Service {service} with clusterIP None, selecting the workers",
                of.resource.kind,
                name.name,
                service_field(of.resource)
            );
        }
        format!(
            "kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={service}: the Service must select the pod, and the pod must have an address"
        )
    }

    /// The values of its ConfigMap.
    ///
    /// # Errors
    /// If no ConfigMap can have them.
    pub(crate) fn files(&self, hosts: &[Host]) -> Result<BTreeMap<String, String>, Problem> {
        let dirs: BTreeSet<&str> =
            self.workloads.iter().map(|(_, of)| of.request.ssh_dir(self.policy)).collect();
        let dirs: Vec<&str> = dirs.into_iter().collect();
        let too_long = |bytes| Problem::TooLong { bytes, hosts: hosts.len() };
        config::data(hosts, self.implementation(), &dirs, self.domain()).map_err(too_long)
    }

    /// Finds the reason why it cannot start, whatever its pods do. The workers are only looked at as a whole while a launcher
    /// waits for them: two workloads of workers are not created at the same moment, and clean-up stops them
    /// after the launcher's end.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let mut found = 0_u32;
        for (name, workers) in self.of_role(Role::Worker) {
            let completions = workers.count.unwrap_or_default();
            found = found.saturating_add(completions);
            if let Some(parallelism) = workers.parallelism.filter(|at_once| *at_once < completions)
            {
                let job = (*name.name).into();
                return Some(Problem::NotAtOnce { job, parallelism, completions });
            }
        }
        let launcher = self.launcher().filter(|(_, of)| !of.is_over)?;
        let mut annotated = self.workloads.iter().filter_map(|(_, of)| of.request.workers);
        // With an empty hostfile Open MPI 5 runs all ranks on the launcher, and succeeds.
        if found == 0 && !launcher.1.request.launcher_as_worker {
            let empty = self.of_role(Role::Worker).next();
            return Some(empty.map_or(Problem::NoWorkers, |(name, of)| Problem::ScaledToZero {
                resource: of.resource,
                workload: name.clone(),
                annotated: annotated.next(),
            }));
        }
        let mut of_workers = self.of_role(Role::Worker);
        if let Some((job, _)) = of_workers.find(|(_, of)| of.is_suspended && !of.is_over) {
            return Some(Problem::Suspended { job: job.clone() });
        }
        let differs = annotated.find(|annotated| *annotated != found);
        differs.map(|annotated| Problem::Differs { annotated, found })
    }

    /// The workers that the workloads promise, in the order of `hosts`.
    pub(crate) fn workers<'c>(&self, hosts: &'c [Host], view: &'v View) -> Vec<Worker<'c, 'v>> {
        let mut pods: HashMap<(&str, &str), (&'v Name, &'v MpiPod)> = HashMap::new();
        for (name, pod) in
            self.pods.iter().filter(|(_, pod)| pod.role == Role::Worker && !pod.finished)
        {
            if let (Some((_, owner)), Some(hostname)) = (&pod.owner, &pod.hostname) {
                pods.insert((&owner.uid, hostname), (name, pod));
            }
        }
        let mut records: HashMap<&'c str, BTreeSet<&'v str>> = HashMap::new();
        let mut workloads = self
            .of_role(Role::Worker)
            .flat_map(|(name, of)| (0..of.count.unwrap_or_default()).map(move |_| (name, of)));
        let of_workers = hosts.iter().filter(|host| host.port.is_some());
        of_workers
            .filter_map(|host| {
                let workload = workloads.next()?;
                let of_service = records.entry(&host.service).or_insert_with(|| {
                    view.hostnames_of_service(&Name::new(&self.name.namespace, &host.service))
                });
                let pod = pods.get(&(&*workload.1.identity.uid, &*host.hostname)).copied();
                let has_record = of_service.contains(&*host.hostname);
                Some(Worker { workload, host, pod, has_record })
            })
            .collect()
    }
}

/// Returns the field that names the Service of a workload's pods.
pub(crate) fn service_field(resource: Resource) -> &'static str {
    if resource == STATEFUL_SET { "serviceName" } else { "subdomain in its pod template" }
}

/// The hostname of a worker. StatefulSets and Indexed Jobs give it to their pods.
fn hostname(workload: &Name, index: u32) -> String {
    format!("{}-{index}", workload.name)
}
