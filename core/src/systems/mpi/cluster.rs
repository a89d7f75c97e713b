//! The state of one cluster: its workloads and pods, its hosts, and what is wrong. The controller, `check`
//! and `plan` derive the same from it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::config::{self, Domain, Host};
use super::keys;
use super::kinds::pod::MpiPod;
use super::kinds::workload::Workload;
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
    pub view: &'v View,
    pub policy: &'v Policy,
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

/// The reason why a cluster does not start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Problem {
    /// The reason of the event, a stable word.
    pub reason: &'static str,
    /// Continues "the cluster does not start: ".
    pub text: String,
    pub remedy: String,
}

impl Problem {
    /// A Job of workers makes none until it is resumed: clean-up leaves it like that.
    pub(crate) fn suspended(job: &Name) -> Self {
        let Name { namespace, name } = job;
        Self {
            reason: reason::NO_WORKERS,
            text: format!("Job {name} is suspended"),
            remedy: format!(
                "unless a queue resumes it: kubectl patch job {name} -n {namespace} -p '{{\"spec\":{{\"suspend\":false}}}}'"
            ),
        }
    }

    /// A workload is there and makes none: clean-up leaves a StatefulSet like that.
    fn scaled_to_zero(workload: &Name, resource: Resource, annotated: Option<u32>) -> Self {
        let Name { namespace, name } = workload;
        let (why, remedy) = if resource == STATEFUL_SET {
            let (count, more) = match annotated {
                Some(annotated) => (annotated, ""),
                None => (1, ": or more, as many workers as the launcher shall use"),
            };
            let remedy =
                format!("kubectl scale statefulset {name} -n {namespace} --replicas={count}{more}");
            ("is scaled to 0", remedy)
        } else {
            let remedy = "create the Job again with completionMode: Indexed and its completions";
            ("has no completions, or is not Indexed", remedy.to_owned())
        };
        let text = format!("{} {name} makes no workers: it {why}", resource.kind);
        Self { reason: reason::NO_WORKERS, text, remedy }
    }

    /// No ConfigMap can have files of this length.
    fn too_long(bytes: usize, hosts: usize) -> Self {
        Self {
            reason: reason::HOSTFILE_TOO_LONG,
            text: format!(
                "the files for {hosts} hosts have at least {bytes} bytes, and a ConfigMap has at most {}",
                config::MOST_BYTES
            ),
            remedy: "use fewer workers with more slots, or shorter names".to_owned(),
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
        Self { name, workloads, pods, view, policy }
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

    /// The name of its ConfigMap.
    pub(crate) fn config_map(&self) -> Name {
        Name::new(&self.name.namespace, &keys::config_map(&self.name.name))
    }

    /// The name of its Secret.
    pub(crate) fn secret(&self) -> Name {
        Name::new(&self.name.namespace, &keys::secret(&self.name.name))
    }

    fn implementation(&self) -> Implementation {
        let first = self.launcher().or_else(|| self.of_role(Role::Worker).next());
        first.map(|(_, of)| of.request.implementation).unwrap_or_default()
    }

    /// Where its DNS names are.
    pub(crate) fn domain(&self) -> Domain<'_> {
        Domain { namespace: &self.name.namespace, domain: &self.policy.mpi.cluster_domain }
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
            return Err(Problem::too_long(bytes, hosts));
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
        let too_long = |bytes| Problem::too_long(bytes, hosts.len());
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
                return Some(Problem {
                    reason: reason::WORKERS_NOT_AT_ONCE,
                    text: format!(
                        "Job {} runs {parallelism} of its {completions} workers at once, so they are never all ready",
                        name.name
                    ),
                    remedy: format!("set parallelism to {completions}"),
                });
            }
        }
        let launcher = self.launcher().filter(|(_, of)| !of.is_over)?;
        let mut annotated = self.workloads.iter().filter_map(|(_, of)| of.request.workers);
        // With an empty hostfile Open MPI 5 runs all ranks on the launcher, and succeeds.
        if found == 0 && !launcher.1.request.launcher_as_worker {
            let no_workload = || Problem {
                reason: reason::NO_WORKERS,
                text: "no workload of the namespace makes its workers".to_owned(),
                remedy: format!(
                    "create a StatefulSet or an Indexed Job whose pod template has the cluster's name in {} and {}: worker",
                    keys::CLUSTER,
                    keys::ROLE
                ),
            };
            let empty = self.of_role(Role::Worker).next();
            return Some(empty.map_or_else(no_workload, |(name, of)| {
                Problem::scaled_to_zero(name, of.resource, annotated.next())
            }));
        }
        let mut of_workers = self.of_role(Role::Worker);
        if let Some((job, _)) = of_workers.find(|(_, of)| of.is_suspended && !of.is_over) {
            return Some(Problem::suspended(job));
        }
        let differs = annotated.find(|annotated| *annotated != found);
        differs.map(|annotated| Problem {
            reason: reason::WORKERS_DIFFER,
            text: format!(
                "the annotation {} says {annotated}, and the workloads make {found}",
                keys::WORKERS
            ),
            remedy: format!(
                "scale the workers, or write {}: \"{found}\" on all pod templates",
                keys::WORKERS
            ),
        })
    }

    /// The workers that the workloads promise, in the order of `hosts`.
    pub(crate) fn workers<'c>(&self, hosts: &'c [Host]) -> Vec<Worker<'c, 'v>> {
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
                    self.view.hostnames_of_service(&Name::new(&self.name.namespace, &host.service))
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
