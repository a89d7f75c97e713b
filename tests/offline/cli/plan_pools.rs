//! `stowplan plan`: pools and jobs of the input, with the members that the controller would choose.

use serde_json::json;

use super::command::{Folder, Output, nodes, run};

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
    let text = pool("edge", "{size: 2, tags: [ib], exclusivity: Exclusive}")
        + &pool("rest", "{size: 1}")
        + &pod("a", "edge[1]")
        + &pod("b", "rest");
    // The hash of a UID that does not exist yet is not shown.
    plan(3, &text, "")
        .has_lines(
            0,
            &[
                "HostPool default/edge: accepted: it can be placed",
                "  members: n1, n2 (the controller would choose them now)",
                "  members: n3 (the controller would choose it now)",
                "Pod default/a: placed",
                "Pod default/b: placed",
                "4 objects: 2 placed, 2 accepted",
            ],
        )
        .shows(0, &["<hash of HostPool default/edge>"])
        .lacks("not ready");
    let entry = plan(3, &text, "-o json").first();
    assert_eq!(entry["pools"][0]["members"], json!(["n1", "n2"]), "{entry}");
    // A pool that gets no members refuses its pods with the reason.
    let text = pool("edge", "{size: 2}") + &pod("a", "edge");
    let unready = "HostPool default/edge: accepted\n  not ready: needs 2 nodes";
    plan(1, &text, "").shows(1, &[unready, "PoolNotReady"]);
}

#[test]
fn a_job_of_the_input_has_its_pools_and_the_pods_join_it() {
    let spec = "{pools: [{name: own, size: 2, tags: [ib], exclusivity: Exclusive}, {name: all, tags: [ib]}], \
                processingElements: [\
                {name: e1, operators: [{name: A, host: {pool: own, index: 1}}]}, \
                {name: e2, operators: [{name: B, host: {pool: own}}]}]}";
    plan(3, &job(spec, &["e1", "e2"]), "")
        .has_lines(
            0,
            &[
                "  pool own: n1, n2 (the controller would choose them now)",
                "3 objects: 2 placed, 1 accepted",
            ],
        )
        .lacks("not ready");
    plan(1, &job("{processingElements: [{name: e}]}", &["e"]), "").has_lines(
        0,
        &["Pod default/e: placed: nothing constrains its node, only its record changes"],
    );
}

#[test]
fn nodes_of_older_pools_of_the_cluster_are_not_given_again() {
    let older = pool("older", "{size: 2, exclusivity: Exclusive}").replace(
        "{name: older}",
        "{name: older, uid: u1, creationTimestamp: '2026-01-01T00:00:00Z'}",
    );
    let folder = Folder::new(&[("cluster/nodes.yaml", &nodes(3)), ("cluster/pool.yaml", &older)]);
    let text = pool("new", "{size: 1}") + &pod("a", "new") + &pod("b", "older");
    let output = folder.plan_of("--cluster cluster", text);
    let members = "\n  members: n3 (the controller would choose it now)\n";
    output.shows(output.code, &[members, "Pod default/a: placed"]);
}

/// A patch with the hash of a UID that does not exist yet would bind the pod to no node.
#[test]
fn no_patch_is_written_that_depends_on_a_uid_which_does_not_exist_yet() {
    let text = pool("edge", "{size: 1}") + &pod("a", "edge") + &pod("b", "edge");
    for format in ["yaml", "patch"] {
        let notice = "stowplan: Pod default/a: not placed: the patch needs the UID of HostPool default/edge: \
                      create that first, then plan with --live\n";
        plan(2, &text, &format!("-o {format}")).shows(1, &[]).lacks("affinity").warns(&[notice]);
    }
}

#[test]
fn the_pools_of_the_examples_are_served() {
    let words = "plan -f examples/streams-job-pools.yaml examples/streams-job-pools-pods.yaml \
                 --cluster examples/nodes.yaml --cluster examples/pool-nodes.yaml";
    run(words, "").shows(0, &["\n11 objects: 10 placed, 1 accepted\n"]).lacks("not ready");
}

/// Elements, each of one operator with these constraints.
fn elements(of: &[(&str, &str)]) -> String {
    let element = |(name, constraints): &(&str, &str)| {
        format!("{{name: {name}, operators: [{{name: Op_{name}{constraints}}}]}}")
    };
    format!("[{}]", of.iter().map(element).collect::<Vec<_>>().join(", "))
}

#[test]
fn a_job_is_placed_as_a_whole() {
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
    let both = "[{name: e, operators: [{name: A, host: {pool: S0}}, {name: B, host: {name: n1}}]}]";
    for (count, pools, elements, code, expected) in [
        // A pool leaves the node that another element names …
        (3, own, elements(&beside), 0, &["pool Own: n2, n3 (the controller"][..]),
        // … and without a third node it is refused, with what contradicts what.
        (
            2,
            own,
            elements(&beside),
            1,
            &[
                "InsufficientNodes: StreamsJob j: these cannot hold together (2 nodes can take pods): pool \"Own\" \
               needs 2 nodes for itself (2 eligible); operator \"Op_named\" of processing element \"named\" asks \
               for the host with the name n1",
            ],
        ),
        // A pool is the node to which its element is bound.
        (6, "{name: S, size: 1}", elements(&bound), 0, &["pool S: n5 (the controller"]),
        // The only node of an isolated element is reserved.
        (6, "{name: P, hosts: [n3]}", elements(&isolated), 0, &["node n3 reserved for alone ("]),
        // Pools spread, and leave listed nodes.
        (
            6,
            spread,
            elements(&[("free", "")]),
            0,
            &["pool Own: n3 (the", "pool A: n4 (the", "pool B: n5 (the"],
        ),
        // An exclusive pool that lists the host of another one is named.
        (
            3,
            crossed,
            both.to_owned(),
            1,
            &["pool \"S1\" has node n1 for itself", "exclusive pool \"S0\"", "the name n1"],
        ),
    ] {
        let spec = format!("{{pools: [{pools}], processingElements: {elements}}}");
        let output = plan(count, &job(&spec, &[]), "");
        assert_eq!((output.code, output.stderr.as_str()), (code, ""), "{output:?}");
        let text = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in expected {
            assert!(text.contains(expected), "{expected}: {}", output.stdout);
        }
    }
}
