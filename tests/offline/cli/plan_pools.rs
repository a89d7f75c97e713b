//! `stowplan plan`: pools and jobs of the input, with the members that the controller would choose.

use serde_json::json;

use super::command::{Folder, Output, Shown, nodes, run};

fn pool(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n"
    )
}

fn pod(name: &str, pool: &str) -> String {
    super::command::pod(name, &format!("streams.ibm.com/host-pool: '{pool}'")) + "---\n"
}

/// A job `j` with this spec, and a pod of each of these elements.
fn job(spec: &str, elements: &[&str]) -> String {
    let pod = |element: &&str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {element}, labels: \
             {{streams.ibm.com/job: j, streams.ibm.com/pe: {element}}}}}\n\
             spec: {{containers: [{{name: pe, image: streams-runtime}}]}}\n"
        )
    };
    let pods: String = elements.iter().map(pod).collect();
    format!(
        "apiVersion: stowplan.dev/v1alpha1\nkind: StreamsJob\nmetadata: {{name: j}}\nspec: {spec}\n{pods}"
    )
}

/// What `plan` prints about this input on so many nodes.
fn plan(count: u32, text: &str, words: &str) -> Output {
    let folder = Folder::new(&[("nodes.yaml", &nodes(count))]);
    folder.plan_of(&format!("--cluster nodes.yaml {words}"), text)
}

#[test]
fn a_pool_of_the_input_gets_the_members_that_the_controller_would_choose() {
    let mut shown = Shown::default();
    let text = pool("edge", "{size: 2, tags: [ib], exclusivity: Exclusive}")
        + &pool("rest", "{size: 1}")
        + &pod("a", "edge[1]")
        + &pod("b", "rest");
    // The hash of a UID that does not exist yet is not shown.
    shown.add("two pools", &plan(3, &text, ""));
    let entry = plan(3, &text, "-o json").first();
    assert_eq!(entry["pools"][0]["members"], json!(["n1", "n2"]), "{entry}");
    let text = pool("edge", "{size: 2}") + &pod("a", "edge");
    shown.add("too few nodes", &plan(1, &text, ""));
    // Nodes of older pools of the cluster are not given again.
    let older = pool("older", "{size: 2, exclusivity: Exclusive}").replace(
        "{name: older}",
        "{name: older, uid: u1, creationTimestamp: '2026-01-01T00:00:00Z'}",
    );
    let folder = Folder::new(&[("cluster/nodes.yaml", &nodes(3)), ("cluster/pool.yaml", &older)]);
    let text = pool("new", "{size: 1}") + &pod("a", "new") + &pod("b", "older");
    shown.add("an older pool", &folder.plan_of("--cluster cluster", text));
    // A patch with the hash of a UID that does not exist yet would bind the pod to no node.
    let text = pool("edge", "{size: 1}") + &pod("a", "edge") + &pod("b", "edge");
    for format in ["yaml", "patch"] {
        shown.add(&format!("as {format}"), &plan(2, &text, &format!("-o {format}")));
    }
    shown.compare("plan_pools");
}

#[test]
fn the_pools_of_the_examples_are_served() {
    let words = "plan -f examples/streams-job-pools.yaml examples/streams-job-pools-pods.yaml \
                 --cluster examples/nodes.yaml --cluster examples/pool-nodes.yaml";
    run(words, "").shows(0, &["\n11 objects: 10 placed, 1 accepted\n"]).lacks("not ready");
}

/// The spec of a job with these pools, and elements of one operator with these constraints.
fn spec(pools: &str, of: &[(&str, &str)]) -> String {
    let element = |(name, constraints): &(&str, &str)| {
        format!("{{name: {name}, operators: [{{name: Op_{name}{constraints}}}]}}")
    };
    let elements = of.iter().map(element).collect::<Vec<_>>().join(", ");
    format!("{{pools: [{pools}], processingElements: [{elements}]}}")
}

#[test]
fn a_job_of_the_input_is_placed_as_a_whole_and_the_pods_join_it() {
    let mut shown = Shown::default();
    let pools = "{name: own, size: 2, tags: [ib], exclusivity: Exclusive}, {name: all, tags: [ib]}";
    let hosts = [("e1", ", host: {pool: own, index: 1}"), ("e2", ", host: {pool: own}")];
    shown.add("pools", &plan(3, &job(&spec(pools, &hosts), &["e1", "e2"]), ""));
    shown.add("nothing", &plan(1, &job(&spec("", &[("e", "")]), &["e"]), ""));
    let own = "{name: Own, size: 2, exclusivity: Exclusive}";
    let beside = [("in", ", host: {pool: Own}"), ("named", ", host: {name: n1}")];
    let bound = [
        ("parse", ", host: {pool: S}, hostColocation: [t]"),
        ("source", ", host: {name: n5}, hostColocation: [t]"),
    ];
    let isolated = [("free", ""), ("alone", ", host: {pool: P}, hostIsolation: true")];
    let spread = "{name: Listed, hosts: [n1, n2]}, {name: Own, size: 1, exclusivity: Exclusive}, \
                  {name: A, size: 1}, {name: B, size: 1}";
    let crossed = "{name: S0, size: 1, exclusivity: Exclusive}, \
                   {name: S1, hosts: [n1], exclusivity: Exclusive}";
    let both = ", host: {pool: S0}}, {name: B, host: {name: n1}";
    for (label, count, spec) in [
        ("a pool leaves the node that another element names", 3, spec(own, &beside)),
        ("without a third node, what contradicts what", 2, spec(own, &beside)),
        ("a pool is the node of its element", 6, spec("{name: S, size: 1}", &bound)),
        ("the only node of an isolated element", 6, spec("{name: P, hosts: [n3]}", &isolated)),
        ("pools spread, and leave listed nodes", 6, spec(spread, &[("free", "")])),
        ("an exclusive pool lists the host of another one", 3, spec(crossed, &[("e", both)])),
    ] {
        shown.add(label, &plan(count, &job(&spec, &[]), ""));
    }
    shown.compare("plan_whole");
}
