//! `stowplan plan`: a StreamsJob is placed as a whole.

use super::command::Folder;

/// Nodes n1 to n`count`, Ready.
fn nodes(count: u32) -> String {
    let node = |number: u32| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n{number}, uid: n{number}, labels: \
             {{kubernetes.io/hostname: n{number}}}}}\nstatus: {{conditions: [{{type: Ready, status: 'True'}}]}}\n---\n"
        )
    };
    (1..=count).map(node).collect()
}

/// What `plan` says about the job `j` with this spec on so many nodes: its exit code and its text.
fn plan(count: u32, spec: &str) -> (i32, String) {
    let folder = Folder::new(&[("nodes.yaml", &nodes(count))]);
    let job = format!(
        "apiVersion: stowplan.dev/v1alpha1\nkind: StreamsJob\nmetadata: {{name: j}}\nspec: {spec}\n"
    );
    let output = folder.plan_with("-f - --cluster nodes.yaml", job.as_bytes());
    assert_eq!(output.stderr, "");
    (output.code, output.stdout)
}

/// A spec of these pools and elements, each of one operator with these constraints.
fn spec(pools: &str, elements: &[(&str, &str)]) -> String {
    let element = |(name, constraints): &(&str, &str)| {
        format!("{{name: {name}, operators: [{{name: Op_{name}{constraints}}}]}}")
    };
    let elements: Vec<String> = elements.iter().map(element).collect();
    format!("{{pools: [{pools}], processingElements: [{}]}}", elements.join(", "))
}

#[test]
fn a_pool_leaves_the_node_that_another_element_names() {
    let pool = "{name: Own, size: 2, exclusivity: Exclusive}";
    let elements = [("in", ", host: {pool: Own}"), ("named", ", host: {name: n1}")];
    let (code, text) = plan(3, &spec(pool, &elements));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("pool Own: n2, n3 (the controller"), "{text}");
    // Without a third node it is refused, with what contradicts what.
    let (code, text) = plan(2, &spec(pool, &elements));
    assert_eq!(code, 1, "{text}");
    let why = "InsufficientNodes: StreamsJob j: these cannot hold together (2 nodes can take pods): pool \"Own\" \
               needs 2 nodes for itself (2 eligible); operator \"Op_named\" of processing element \"named\" asks \
               for the host with the name n1";
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(why), "{text}");
}

#[test]
fn a_pool_is_the_node_to_which_its_element_is_bound() {
    let elements = [
        ("parse", ", host: {pool: S}, hostColocation: [t]"),
        ("source", ", host: {name: n5}, hostColocation: [t]"),
    ];
    let (code, text) = plan(6, &spec("{name: S, size: 1}", &elements));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("pool S: n5 (the controller"), "{text}");
}

#[test]
fn the_only_node_of_an_isolated_element_is_reserved() {
    let elements = [("free", ""), ("alone", ", host: {pool: P}, hostIsolation: true")];
    let (code, text) = plan(6, &spec("{name: P, hosts: [n3]}", &elements));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("node n3 reserved for alone ("), "{text}");
}

#[test]
fn pools_spread_and_leave_listed_nodes() {
    let pools = "{name: Listed, hosts: [n1, n2]}, {name: Own, size: 1, exclusivity: Exclusive}, \
                 {name: A, size: 1}, {name: B, size: 1}";
    let (code, text) = plan(6, &spec(pools, &[("free", "")]));
    assert_eq!(code, 0, "{text}");
    for pool in ["Own: n3", "A: n4", "B: n5"] {
        assert!(text.contains(&format!("pool {pool} (the controller")), "{text}");
    }
}

#[test]
fn an_exclusive_pool_that_lists_the_host_of_another_one_is_named() {
    let pools = "{name: S0, size: 1, exclusivity: Exclusive}, \
                 {name: S1, hosts: [n1], exclusivity: Exclusive}";
    let spec = format!(
        "{{pools: [{pools}], processingElements: [{{name: e, operators: [\
         {{name: A, host: {{pool: S0}}}}, {{name: B, host: {{name: n1}}}}]}}]}}"
    );
    let (code, text) = plan(3, &spec);
    assert_eq!(code, 1, "{text}");
    for why in ["pool \"S1\" has node n1 for itself", "exclusive pool \"S0\"", "the name n1"] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(why), "{text}");
    }
}
