//! The workloads of MPI clusters: Jobs and StatefulSets whose pod templates have the annotations.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::kubernetes::{annotation, label};
use crate::placement::container::User;
use crate::systems::mpi::container;
use crate::systems::mpi::keys::CLEANED_AFTER;
use crate::systems::mpi::request::Request;
use crate::systems::mpi::resources::JOB;
use crate::systems::mpi::server::Server;
use crate::systems::policy::Policy;
use crate::view::index::Sets;
use crate::view::resource::STATEFUL_SET;
use crate::view::rows::{GroupedRow, Rows, TableRow};
use crate::view::{Identity, Kind, Name, Resource, Scope};

/// The label of the Jobs and pods of a JobSet: its name.
const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";

/// A workload of a cluster: a Job, a StatefulSet, or a launcher's pod that no workload makes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Workload {
    pub identity: Identity,
    /// [`JOB`], [`STATEFUL_SET`] or a pod.
    pub resource: Resource,
    /// The request in the annotations of its pod template.
    pub request: Request,
    /// How many pods with names of their own it makes: `completions` of an Indexed Job, `replicas`.
    pub count: Option<u32>,
    /// The index of the first of them: `ordinals.start` of a StatefulSet.
    pub first: u32,
    /// `parallelism` of a Job: how many of its pods run at once.
    pub parallelism: Option<u32>,
    /// `suspend` of a Job.
    pub is_suspended: bool,
    /// True if a Job or pod has succeeded or failed.
    pub is_over: bool,
    /// The UID of the launcher after whose end the workers were stopped: the annotation
    /// [`CLEANED_AFTER`].
    pub cleaned_after: Option<Box<str>>,
    /// True if it has any annotation: a patch cannot add one to nothing.
    pub has_annotations: bool,
    /// `hostname` of the template.
    pub hostname: Option<Box<str>>,
    /// The name of the Service of its pods' hostnames, if the template or the StatefulSet has one.
    pub subdomain: Option<Box<str>>,
    /// True if it is of a JobSet, which makes that Service itself.
    pub is_of_job_set: bool,
    /// The name of the container that runs `mpirun` or the ssh server.
    pub container: Box<str>,
    /// The ssh server of that container.
    pub server: Server,
}

impl Workload {
    /// The cluster of a workload of this name.
    pub(crate) fn cluster(&self, name: &Name) -> Name {
        Name::new(&name.namespace, &self.request.cluster)
    }

    /// The port of its ssh servers, if it makes workers.
    pub(crate) fn port(&self, policy: &Policy) -> u16 {
        self.server.port(&self.request, policy)
    }

    /// Reads what the workloads have in common: `template` is the metadata of the pods. `None`: the
    /// object is of no cluster, or its pods are refused.
    pub(super) fn read(
        metadata: &ObjectMeta,
        resource: Resource,
        template: Option<&ObjectMeta>,
        spec: Option<&PodSpec>,
    ) -> Option<Self> {
        let annotations = template?.annotations.as_ref()?;
        let request =
            Request::parse_annotations(|key| annotations.get(key).map(String::as_str))?.ok()?;
        let spec = spec?;
        let names = spec.containers.iter().map(|container| &*container.name);
        let container = spec.containers.get(container::choose(&request, names).ok()?)?;
        let own = container.security_context.as_ref();
        let of_pod = spec.security_context.as_ref();
        let user = own.and_then(|of| of.run_as_user).or_else(|| of_pod?.run_as_user);
        let is_other = own.and_then(|of| of.run_as_non_root).or_else(|| of_pod?.run_as_non_root);
        let command = [&container.command, &container.args].into_iter().flatten().flatten();
        let text =
            |text: &Option<String>| text.as_deref().filter(|of| !of.is_empty()).map(Into::into);
        Some(Self {
            identity: Identity::from(metadata),
            resource,
            request,
            count: None,
            first: 0,
            parallelism: None,
            is_suspended: false,
            is_over: false,
            cleaned_after: annotation(metadata, CLEANED_AFTER).map(Into::into),
            has_annotations: metadata.annotations.is_some(),
            hostname: text(&spec.hostname),
            subdomain: text(&spec.subdomain),
            is_of_job_set: label(metadata, JOB_SET).is_some(),
            container: (*container.name).into(),
            server: Server::new(User::of(user, is_other), command.map(String::as_str)),
        })
    }
}

fn whole(number: Option<i32>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

/// A Job of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MpiJob(pub Workload);

/// A StatefulSet of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MpiSet(pub Workload);

/// The table of the Jobs of clusters.
pub(crate) type MpiJobs = Rows<MpiJob, Sets<Name>>;

/// The table of the StatefulSets of clusters.
pub(crate) type MpiSets = Rows<MpiSet, Sets<Name>>;

static JOBS: Kind = Kind::built_in(JOB);
static SETS: Kind = Kind::built_in(STATEFUL_SET);

impl TableRow for MpiJob {
    type Object = Job;
    const KIND: &'static Kind = &JOBS;
    const COUNTED_AS: Option<&'static str> = Some("mpi jobs");
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(job: &Job, scope: Scope) -> Option<Self> {
        let spec = job.spec.as_ref().filter(|_| scope != Scope::Admission)?;
        let template = &spec.template;
        let read =
            Workload::read(&job.metadata, JOB, template.metadata.as_ref(), template.spec.as_ref())?;
        let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let conditions = job.status.iter().flat_map(|of| of.conditions.iter().flatten());
        let mut over = conditions.filter(|of| matches!(&*of.type_, "Complete" | "Failed"));
        // The Job controller gives the pods of an Indexed Job their hostnames.
        let of_index = || Some(format!("{}-0", job.metadata.name.as_deref()?).into());
        let hostname = if is_indexed { of_index() } else { read.hostname };
        Some(Self(Workload {
            hostname,
            count: whole(spec.completions).filter(|_| is_indexed),
            parallelism: whole(spec.parallelism),
            is_suspended: spec.suspend == Some(true),
            is_over: over.any(|condition| condition.status == "True"),
            ..read
        }))
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.0.identity)
    }
}

impl GroupedRow for MpiJob {
    type Key = Name;

    fn key(&self, name: &Name) -> Option<Name> {
        Some(self.0.cluster(name))
    }
}

impl TableRow for MpiSet {
    type Object = StatefulSet;
    const KIND: &'static Kind = &SETS;
    const COUNTED_AS: Option<&'static str> = Some("mpi statefulsets");
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(set: &StatefulSet, scope: Scope) -> Option<Self> {
        let spec = set.spec.as_ref().filter(|_| scope != Scope::Admission)?;
        let template = &spec.template;
        let of_pods = (template.metadata.as_ref(), template.spec.as_ref());
        let read = Workload::read(&set.metadata, STATEFUL_SET, of_pods.0, of_pods.1)?;
        let service = spec.service_name.as_deref().filter(|name| !name.is_empty());
        Some(Self(Workload {
            // As Kubernetes defaults it.
            count: whole(Some(spec.replicas.unwrap_or(1))),
            first: whole(spec.ordinals.as_ref().and_then(|of| of.start)).unwrap_or_default(),
            subdomain: service.map(Into::into).or(read.subdomain),
            ..read
        }))
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.0.identity)
    }
}

impl GroupedRow for MpiSet {
    type Key = Name;

    fn key(&self, name: &Name) -> Option<Name> {
        Some(self.0.cluster(name))
    }
}
