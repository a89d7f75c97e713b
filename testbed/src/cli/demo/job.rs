//! The second scenario: a StreamsJob with host pools whose hosts stowplan chooses.
//!
//! The checks compare the constraints in the StreamsJob with the nodes of the pods and the hosts in
//! the pools' status, without stowplan's code.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde_json::Value;
use testbed::control_plane::ControlPlane;

use super::table::Row;
use super::{label_of, name_of, node_of, placed_pods, print_rows, recorded_reasons};

/// The job's name, and the value of its pods' label.
const JOB: &str = "parallel";

/// A pod of the job.
struct Placed {
    name: String,
    element: String,
    node: String,
    why: Vec<String>,
}

/// A pool of the job. `hosts` are in order; empty for a pool without a fixed number of hosts.
struct Pool {
    name: String,
    hosts: Vec<String>,
    is_exclusive: bool,
}

/// Waits until the job's pods are placed, checks the constraints, and prints the nodes.
pub(super) async fn show(plane: &ControlPlane, client: &Client) -> Result<()> {
    let job = object(client, "StreamsJob", JOB).await?;
    let pods = placed_pods(plane, client, JOB).await?;
    let pods = pods.iter().map(read).collect::<Result<Vec<_>>>()?;
    let pools = pools(client, &job).await?;
    say!();
    for pool in pools.iter().filter(|pool| !pool.hosts.is_empty()) {
        let exclusive = if pool.is_exclusive { ", for this job alone" } else { "" };
        say!("   {:9} has the hosts {}{exclusive}", pool.name, pool.hosts.join(", "));
    }
    say!();
    print_table(&job, &pods)?;
    say!();
    let all_pods: Api<Pod> = Api::all(client.clone());
    let all_pods = all_pods.list(&ListParams::default().labels("app=streams")).await?.items;
    let unmet = unmet(&job, &pods, &pools, &all_pods);
    ensure!(unmet.is_empty(), "placed wrongly:\n  {}", unmet.join("\n  "));
    say!(
        "   Every operator is on a host that its constraints allow, and no other pod is on the\n   exclusive hosts."
    );
    Ok(())
}

pub(super) fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("stowplan.dev", "v1alpha1", kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

async fn object(client: &Client, kind: &str, name: &str) -> Result<Value> {
    Ok(api(client, kind).get(name).await?.data)
}

fn read(pod: &Pod) -> Result<Placed> {
    Ok(Placed {
        name: name_of(pod).to_owned(),
        element: label_of(pod, "streams.ibm.com/pe").to_owned(),
        node: node_of(pod).to_owned(),
        // A pod without constraints has no record.
        why: of_constraints(recorded_reasons(pod)?.unwrap_or_default()),
    })
}

/// The record's reasons but for those that name only the element or the job's reserved nodes. None are left
/// where the operators' constraints allow every host.
fn of_constraints(mut reasons: Vec<String>) -> Vec<String> {
    reasons.retain(|reason| !reason.starts_with("streams-job=") || reason.contains(", group "));
    reasons.retain(|reason| !reason.starts_with("reserved="));
    if reasons.is_empty() {
        reasons.push("any host is allowed".to_owned());
    }
    reasons
}

async fn pools(client: &Client, job: &Value) -> Result<Vec<Pool>> {
    let mut pools = Vec::new();
    for pool in job["spec"]["pools"].as_array().into_iter().flatten() {
        let name = text(&pool["name"]);
        let owned = job["status"]["pools"].as_array().into_iter().flatten();
        let owned = owned.into_iter().find(|owned| owned["name"] == pool["name"]);
        let host_pool = owned.with_context(|| format!("pool {name} has no HostPool"))?;
        let host_pool = object(client, "HostPool", text(&host_pool["hostPool"])).await?;
        let members = host_pool["status"]["members"].as_array().into_iter().flatten();
        pools.push(Pool {
            hosts: members.map(|member| text(&member["node"]).to_owned()).collect(),
            is_exclusive: pool["exclusivity"] == "Exclusive",
            name: name.to_owned(),
        });
    }
    Ok(pools)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The operators of a processing element.
fn operators<'j>(job: &'j Value, element: &str) -> Vec<&'j Value> {
    let elements = job["spec"]["processingElements"].as_array().into_iter().flatten();
    let element = elements.into_iter().find(|known| known["name"] == element);
    element.and_then(|element| element["operators"].as_array()).into_iter().flatten().collect()
}

fn tokens<'j>(operator: &'j Value, kind: &str) -> Vec<&'j str> {
    operator[kind].as_array().into_iter().flatten().map(text).collect()
}

/// Formats the constraints of an operator in SPL.
fn format_constraints(operator: &Value) -> String {
    let mut constraints = Vec::new();
    if let Some(pool) = operator["host"]["pool"].as_str() {
        let index = operator["host"]["index"].as_u64();
        let index = index.map_or_else(String::new, |index| format!("[{index}]"));
        constraints.push(format!("host({pool}{index})"));
    }
    for kind in ["hostColocation", "hostExlocation"] {
        constraints
            .extend(tokens(operator, kind).iter().map(|token| format!("{kind}(\"{token}\")")));
    }
    format!("{}: {}", text(&operator["name"]), constraints.join(", "))
}

fn print_table(job: &Value, pods: &[Placed]) -> Result<()> {
    print_rows(["POD", "OPERATOR", "NODE", "WHY"], pods, |pod| {
        Ok(Row {
            pod: pod.name.clone(),
            constraints: operators(job, &pod.element).into_iter().map(format_constraints).collect(),
            node: pod.node.clone(),
            reasons: pod.why.clone(),
        })
    })
}

/// Describes each constraint that is not met in one line.
fn unmet(job: &Value, pods: &[Placed], pools: &[Pool], all_pods: &[Pod]) -> Vec<String> {
    let mut unmet = Vec::new();
    let mut together: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut apart: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pod in pods {
        for operator in operators(job, &pod.element) {
            if let Some(name) = operator["host"]["pool"].as_str() {
                let hosts = pools.iter().find(|pool| pool.name == name).map(|pool| &pool.hosts);
                let index =
                    operator["host"]["index"].as_u64().and_then(|i| usize::try_from(i).ok());
                let is_in_pool = hosts.is_some_and(|hosts| match index {
                    Some(index) => hosts.get(index) == Some(&pod.node),
                    // A pool without a fixed number of hosts has all hosts with its tags; that is
                    // not checked here.
                    None => hosts.is_empty() || hosts.contains(&pod.node),
                });
                if !is_in_pool {
                    unmet.push(format!("{} is on {}, not in {name}", pod.name, pod.node));
                }
            }
            for token in tokens(operator, "hostColocation") {
                together.entry(token).or_default().insert(&pod.node);
            }
            for token in tokens(operator, "hostExlocation") {
                apart.entry(token).or_default().push(&pod.node);
            }
        }
    }
    for (token, nodes) in together {
        if nodes.len() > 1 {
            unmet.push(format!("hostColocation(\"{token}\") is on {nodes:?}"));
        }
    }
    for (token, nodes) in apart {
        if nodes.iter().collect::<BTreeSet<_>>().len() < nodes.len() {
            unmet.push(format!("hostExlocation(\"{token}\") is on {nodes:?}"));
        }
    }
    for pool in pools.iter().filter(|pool| pool.is_exclusive) {
        for pod in all_pods {
            let (name, node) = (name_of(pod), node_of(pod));
            let is_of_job = pods.iter().any(|own| own.name == name);
            if pool.hosts.iter().any(|host| host == node) && !is_of_job {
                unmet.push(format!("{name} is on an exclusive host of {}", pool.name));
            }
        }
    }
    unmet
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job() -> Value {
        json!({"spec": {"processingElements": [
            {"name": "x", "operators": [{"name": "X", "host": {"pool": "P", "index": 1}, "hostColocation": ["t"]}]},
            {"name": "y", "operators": [{"name": "Y", "hostColocation": ["t"], "hostExlocation": ["u"]}]},
            {"name": "z", "operators": [{"name": "Z", "hostExlocation": ["u"]}]},
        ]}})
    }

    fn found(nodes: [&str; 3]) -> Vec<String> {
        let pods = ["x", "y", "z"].into_iter().zip(nodes).map(|(element, node)| Placed {
            name: element.to_owned(),
            element: element.to_owned(),
            node: node.to_owned(),
            why: Vec::new(),
        });
        let hosts = ["a", "b"].map(str::to_owned).to_vec();
        let pools = [Pool { name: "P".to_owned(), hosts, is_exclusive: true }];
        unmet(&job(), &pods.collect::<Vec<_>>(), &pools, &[])
    }

    #[test]
    fn unmet_constraints_are_found() {
        assert!(found(["b", "b", "c"]).is_empty());
        assert_eq!(found(["a", "a", "c"]), ["x is on a, not in P"]);
        assert_eq!(found(["b", "a", "c"]).len(), 1, "not together");
        assert_eq!(found(["b", "b", "b"]).len(), 1, "not apart");
    }

    #[test]
    fn an_element_without_constraints_may_be_on_any_host() {
        let given = |reasons: &[&str]| {
            of_constraints(reasons.iter().map(|&reason| reason.to_owned()).collect())
        };
        assert_eq!(given(&["streams-job=j: element e", "host-pool=P: a"]), ["host-pool=P: a"]);
        assert_eq!(given(&["streams-job=j: element e"]), ["any host is allowed"]);
        assert_eq!(given(&[]), ["any host is allowed"]);
        let group = "streams-job=j: element e, group 0123";
        assert_eq!(given(&[group]), [group]);
    }

    #[test]
    fn constraints_are_formatted_as_spl() {
        let job = job();
        let asked = operators(&job, "x").into_iter().map(format_constraints).collect::<Vec<_>>();
        assert_eq!(asked, [r#"X: host(P[1]), hostColocation("t")"#]);
    }
}
