//! Checks of jobs that can be placed, and of jobs that cannot.

use serde_json::{Value, json};

use super::*;
use crate::systems;
use crate::systems::streams::api::StreamsJob as Written;
use crate::systems::test_objects::{node, view_of};

/// Three nodes: n1 and n2 have the tags `ib` and `blue`, and n1 also has the single tag `source`.
fn view() -> View {
    let tagged = json!({"hostpool.streams.ibm.com/ib": "", "hostpool.streams.ibm.com/blue": ""});
    let mut source = tagged.clone();
    source["streams.ibm.com/hostpool"] = json!("source");
    let nodes =
        [("n1", "10.8.5.6", source), ("n2", "10.8.5.7", tagged), ("n3", "10.8.5.8", json!({}))];
    view_of(nodes.map(|(name, own, tags)| {
        let addresses = json!([
            {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": own},
            {"type": "InternalDNS", "address": "shared.internal"},
        ]);
        node(name, &json!({"metadata": {"labels": tags}, "status": {"addresses": addresses}}))
    }))
}

fn job(spec: &str) -> (Name, StreamsJob) {
    let spec: StreamsJobSpec = serde_saphyr::from_str(spec).unwrap();
    let mut job = Written::new("parallel", spec);
    job.metadata.namespace = Some("ns".to_owned());
    job.metadata.uid = Some("5f1d6b0e".to_owned());
    (Name::new("ns", "parallel"), StreamsJob::from(&job))
}

fn checked(spec: &str, view: &View, policy: &Policy) -> Vec<Finding> {
    let (name, job) = job(spec);
    check(&name, &job, view, policy)
}

/// A job of two elements: `a` with the operator A, whose further fields are `a`, and likewise `b`.
fn two(pools: &str, a: &str, b: &str) -> String {
    format!(
        "{{pools: [{pools}], processingElements: [{{name: a, operators: [{{name: A{a}}}]}}, {{name: b, operators: [{{name: B{b}}}]}}]}}"
    )
}

/// `tests/offline/streams_whole.rs` shows that no random job which is possible is refused. These are the forms that it
/// does not have.
#[test]
fn a_job_that_can_be_placed_is_accepted() {
    for spec in [
        "{}".to_owned(),
        "{processingElements: [{name: a}]}".to_owned(),
        two("", ", host: {name: n1}", ", host: {address: 10.8.5.7}"),
        two("", ", host: {name: n1}, hostColocation: [t]", ", host: {address: 10.8.5.6}, hostColocation: [t]"),
        two("{name: My_Pool, size: 1}", ", host: {pool: My_Pool}", ""),
        // One operator may list a token twice.
        two("", ", hostExlocation: [t, t]", ""),
        // Colocation x and exlocation x are two tokens.
        two("", ", hostColocation: [x]", ", hostColocation: [x], hostExlocation: [x]"),
        // Fused into one element, isolation and colocation are of one host.
        "{processingElements: [{name: a, operators: [{name: A, hostIsolation: true, hostColocation: [t]}, {name: B, hostColocation: [t]}]}]}".to_owned(),
        // A preference may be impossible to satisfy.
        format!("{{enforcement: Preferred, {}", &two("{name: P, size: 1}", ", host: {pool: P}, hostExlocation: [t]", ", host: {pool: P}, hostExlocation: [t]")[1..]),
        format!("{{enforcement: Preferred, {}", &two("", ", host: {name: n1}, hostColocation: [t]", ", host: {name: n2}, hostColocation: [t]")[1..]),
    ] {
        assert_eq!(checked(&spec, &view(), &Policy::default()), [], "{spec}");
    }
}

#[test]
fn a_job_that_cannot_be_placed_is_refused_with_its_reason() {
    use Reason as R;
    let host = |place: &str| format!(", host: {{{place}}}");
    let together = ", hostColocation: [t]";
    let apart = ", hostExlocation: [t]";
    for (spec, reason, parts) in [
        // An exlocation pair that must share a host: by token, by fusion, by host, by member.
        (two("", &format!("{together}{apart}"), &format!("{together}{apart}")), R::ExlocatedTogether, &["\"A\"", "\"B\"", "\"t\""][..]),
        ("{processingElements: [{name: a, operators: [{name: A, hostExlocation: [t]}, {name: B, hostExlocation: [t]}]}]}".to_owned(), R::ExlocatedTogether, &["one processing element"]),
        ("{processingElements: [{name: a, operators: [{name: A, hostExlocation: [t]}, {name: B, hostExlocation: [t]}, {name: C, hostExlocation: [t]}]}]}".to_owned(), R::ExlocatedTogether, &["\"A\"", "\"B\""]),
        (two("", &(host("name: n1") + apart), &(host("address: 10.8.5.6") + apart)), R::ExlocatedTogether, &["node n1"]),
        (two("{name: P, size: 2}", &(host("pool: P, index: 0") + apart), &(host("pool: P, index: 0") + apart)), R::ExlocatedTogether, &["\"A\"", "\"B\""]),
        (two("{name: P, hosts: [n1, n2]}", &(host("pool: P, index: 0") + apart), &(host("name: n1") + apart)), R::ExlocatedTogether, &["\"A\""]),
        // No common host.
        (two("", &(host("name: n1") + together), &(host("name: n2") + together)), R::NoCommonHost, &["name n1", "name n2", "\"A\"", "\"B\""]),
        ("{processingElements: [{name: a, operators: [{name: A, host: {name: n1}}, {name: B, host: {address: 10.8.5.7}}]}]}".to_owned(), R::NoCommonHost, &["name n1", "address 10.8.5.7"]),
        (format!("{{enforcement: Preferred, {}", &"{processingElements: [{name: a, operators: [{name: A, host: {name: n1}}, {name: B, host: {name: n2}}]}]}"[1..]), R::NoCommonHost, &["name n1"]),
        (two("{name: P, hosts: [n1]}, {name: Q, hosts: [n2, n3]}", &(host("pool: P") + together), &(host("pool: Q") + together)), R::NoCommonHost, &["pool \"P\"", "pool \"Q\""]),
        (two("{name: P, size: 2}", &(host("pool: P, index: 0") + together), &(host("pool: P, index: 1") + together)), R::NoCommonHost, &["host 0 of pool \"P\"", "host 1"]),
        (two("{name: P, tags: [source]}", &(host("pool: P") + together), &(host("name: n3") + together)), R::NoCommonHost, &["pool \"P\"", "name n3"]),
        (two("{name: P, size: 1, exclusivity: Exclusive}, {name: Q, size: 1, exclusivity: Exclusive}", &(host("pool: P") + together), &(host("pool: Q") + together)), R::NoCommonHost, &["\"P\"", "\"Q\""]),
        (two("{name: P, size: 2, exclusivity: Exclusive}", &(host("pool: P") + together), &(host("name: n1") + together)), R::ExclusivePoolSplit, &["exclusive pool \"P\"", "name n1"]),
        // Too many for the hosts.
        (two("{name: P, size: 1}", &(host("pool: P") + apart), &(host("pool: P") + apart)), R::TooManyExlocated, &["2 groups", "pool \"P\"", "which has 1 host"]),
        ("{pools: [{name: P, hosts: [n1, n2]}], processingElements: [{name: a, operators: [{name: A, host: {pool: P}, hostExlocation: [t]}]}, {name: b, operators: [{name: B, host: {pool: P}, hostExlocation: [t]}]}, {name: c, operators: [{name: C, host: {pool: P}, hostExlocation: [t]}]}]}".to_owned(), R::TooManyExlocated, &["3 groups", "2 hosts"]),
        (two("{name: P, size: 1}", &(host("pool: P") + ", hostIsolation: true"), &host("pool: P")), R::TooManyExlocated, &["hostIsolation", "2 hosts"]),
        // Of three that are joined, one is in the pool and another one is to be apart.
        ("{pools: [{name: P, size: 1}], processingElements: [{name: a, operators: [{name: A, host: {pool: P}, hostColocation: [y]}]}, {name: b, operators: [{name: B, hostColocation: [x], hostExlocation: [t]}]}, {name: c, operators: [{name: C, host: {pool: P}, hostExlocation: [t]}]}, {name: d, operators: [{name: D, hostColocation: [x, y]}]}]}".to_owned(), R::TooManyExlocated, &["which has 1 host: hostColocation \"x\" joins processing elements \"b\" and \"d\", hostColocation \"y\" joins processing elements \"d\" and \"a\""]),
        ("{processingElements: [{name: a, operators: [{name: A, host: {name: n1}, hostColocation: [y]}]}, {name: b, operators: [{name: B, hostColocation: [y], hostExlocation: [t]}]}, {name: c, operators: [{name: C, host: {address: 10.8.5.6}, hostExlocation: [t]}]}]}".to_owned(), R::ExlocatedTogether, &["node n1 is the host of both: hostColocation \"y\" joins processing elements \"b\" and \"a\""]),
        // Isolation that is shared.
        (two("", &format!("{together}, hostIsolation: true"), together), R::IsolationShared, &["\"A\"", "\"b\"", "hostColocation \"t\" joins processing elements \"a\" and \"b\""]),
        // What joins them is named, also if another element does.
        ("{processingElements: [{name: a, operators: [{name: A, host: {name: n1}}]}, {name: b, operators: [{name: B, host: {name: n2}}]}, {name: c, operators: [{name: C, host: {name: n2}}, {name: D, host: {name: n1}}]}]}".to_owned(), R::NoCommonHost, &["\"A\" of processing element \"a\" asks for the host with the name n1", "but they must share a host: processing elements \"a\" and \"c\" ask for the host with the name n1, processing elements \"c\" and \"b\" ask for the host with the name n2"]),
        ("{processingElements: [{name: a, operators: [{name: A, hostColocation: [x]}]}, {name: b, operators: [{name: B, hostColocation: [x, y]}]}, {name: c, operators: [{name: C, hostColocation: [y], hostIsolation: true}]}]}".to_owned(), R::IsolationShared, &["\"C\"", "with processing element \"b\": hostColocation \"y\" joins"]),
        // Each two of these have a host, and all three have none.
        ("{pools: [{name: P, hosts: [n1, n2]}, {name: Q, hosts: [n2, n3]}, {name: R, hosts: [n1, n3]}], processingElements: [{name: a, operators: [{name: A, host: {pool: P}}, {name: B, host: {pool: Q}}, {name: C, host: {pool: R}}]}]}".to_owned(), R::NoCommonHost, &["pool \"P\"", "pool \"Q\"", "pool \"R\", and no host is all of these", "they are in one processing element"]),
        // A third that contradicts nothing is left out.
        (format!("{{pools: [{{name: P, hosts: [n1, n2]}}], processingElements: [{{name: a, operators: [{}]}}]}}", ["A, host: {name: n1}", "B, host: {pool: P}", "C, host: {name: n2}"].map(|of| format!("{{name: {of}}}")).join(", ")), R::NoCommonHost, &["\"A\" of processing element \"a\" asks for the host with the name n1, operator \"C\""]),
        (two("", &(host("name: n1") + ", hostIsolation: true"), &host("address: 10.8.5.6")), R::IsolationShared, &["node n1", "\"B\""]),
        // Pools.
        (two("{name: P, size: 2}", &host("pool: P, index: 2"), ""), R::IndexOutOfRange, &["host 2 of pool \"P\"", "0 to 1"]),
        (two("{name: P, tags: [source]}", &host("pool: P, index: 0"), ""), R::IndexOutOfRange, &["no size"]),
        (two("", &host("pool: Q"), ""), R::UndefinedPool, &["pool \"Q\"", "\"A\""]),
        (two("{name: P, hosts: [n1, 10.8.5.6]}", "", ""), R::InvalidPool, &["node n1 twice", "address 10.8.5.6"]),
        (two("{name: P, hosts: [n9]}", "", ""), R::UnknownHost, &["name n9", "hosts[0] of pool \"P\""]),
        (two("{name: P, size: 3, tags: [ib, blue]}", "", ""), R::InsufficientNodes, &["needs 3", "carried by 2"]),
        (two("{name: P, size: 4}", "", ""), R::InsufficientNodes, &["needs 4", "has 3"]),
        (two("{name: P, tags: [none]}", "", ""), R::NoTaggedNode, &["streams.ibm.com/hostpool=none"]),
        (two("{name: P, exclusivity: Exclusive}", "", ""), R::MalformedPool, &["Exclusive without size"]),
        (two("{name: P, size: 1}, {name: P, size: 2}", "", ""), R::DuplicateName, &["two pools are named \"P\""]),
        (two("{name: 1P, size: 1}", "", ""), R::MalformedJob, &["SPL identifier"]),
        // Hosts and names.
        (two("", &host("name: n9"), ""), R::UnknownHost, &["name n9", "\"A\" of processing element \"a\""]),
        (two("", &host("name: shared.internal"), ""), R::AmbiguousHost, &["n1, n2, n3"]),
        (two("", &host("address: n1"), ""), R::InvalidHost, &["not an IP address"]),
        (two("", &host("name: a b"), ""), R::InvalidHost, &["\"a b\""]),
        (two("", &host("name: n1, pool: P"), ""), R::InvalidHost, &["exactly one of"]),
        (two("", &host("name: n1, index: 0"), ""), R::InvalidHost, &["index"]),
        (two("", ", hostColocation: ['']", ""), R::InvalidToken, &["hostColocation", "empty"]),
        (two("", ", hostExlocation: [' a']", ""), R::InvalidToken, &["hostExlocation", "white space"]),
        ("{processingElements: [{name: a}, {name: a}]}".to_owned(), R::DuplicateName, &["two processing elements"]),
        ("{processingElements: [{name: 'a b'}]}".to_owned(), R::MalformedJob, &["label value"]),
        ("{processingElements: [{name: a, operators: [{name: A}, {name: A}]}]}".to_owned(), R::DuplicateName, &["two operators"]),
        ("{processingElements: [{name: a, operators: [{name: ''}]}]}".to_owned(), R::MalformedJob, &["the name is empty"]),
    ] {
        let findings = checked(&spec, &view(), &Policy::default());
        let first = findings.first().unwrap_or_else(|| panic!("accepted: {spec}"));
        assert_eq!(first.reason, reason, "{spec}: {first}");
        assert_eq!(first.subject, "StreamsJob parallel");
        for part in parts {
            assert!(first.to_string().contains(part), "{spec}: {part:?} in {first}");
        }
        assert!(!first.remedy.is_empty());
    }
}

#[test]
fn all_findings_are_reported_in_the_order_of_their_stages() {
    let spec =
        two("{name: P, size: 9}", ", host: {name: n9}", ", host: {pool: Q}, hostColocation: ['']");
    let policy = Policy::from_yaml("hostPools: {enabled: false}").unwrap();
    let findings = checked(&spec, &view(), &policy);
    let reasons: Vec<&str> = findings.iter().map(|finding| finding.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["UndefinedPool", "InvalidToken", "PoolNotAllowed", "InsufficientNodes", "UnknownHost"]
    );
}

#[test]
fn the_policy_counts_exclusive_hosts_by_namespace() {
    let spec = two("{name: P, size: 2, exclusivity: Exclusive}", "", "");
    let policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 2}").unwrap();
    let mut view = view();
    assert_eq!(checked(&spec, &view, &policy), []);
    let pool = |name: &str, namespace: &str, with: &Value| {
        let mut pool = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": name, "namespace": namespace, "generation": 1},
            "spec": {"size": 1, "exclusivity": "Exclusive"},
        });
        json_patch::merge(&mut pool, with);
        systems::object(pool).unwrap().unwrap()
    };
    let owners = json!([{"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "name": "parallel", "uid": "5f1d6b0e", "controller": true}]);
    let (_, own) = job(&spec);
    let owned = json!({"metadata": {"ownerReferences": owners}});
    view.apply(pool(&own.closure.pools[0].host_pool, "ns", &owned));
    view.apply(pool("others", "elsewhere", &json!({})));
    assert_eq!(checked(&spec, &view, &policy), [], "its own, and another namespace's");

    let accepted = |status: &str, generation: u32| {
        json!({"status": {"conditions": [{
            "type": "Accepted", "status": status, "reason": "R", "message": "",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}})
    };
    // The last status is about an earlier size.
    for with in [json!({}), accepted("True", 1), accepted("False", 0)] {
        view.apply(pool("others", "ns", &with));
        let findings = checked(&spec, &view, &policy);
        assert_eq!(findings[0].reason, Reason::TooManyExclusiveNodes, "{with}: {findings:?}");
        assert!(findings[0].problem.contains("2 exclusive hosts beside 1"), "{}", findings[0]);
    }
    view.apply(pool("others", "ns", &accepted("False", 1)));
    assert_eq!(checked(&spec, &view, &policy), [], "the controller has refused that pool");
}

/// A job of the largest size, each operator with a pool and both kinds of tokens.
#[test]
fn every_element_of_a_large_job_is_checked() {
    let elements: Vec<String> = (0..MAX_ELEMENTS)
        .map(|i| {
            format!("{{name: e{i}, operators: [{{name: O{i}, host: {{pool: P}}, hostColocation: [c{}], hostExlocation: [x{}]}}]}}", i / 2, i % 7)
        })
        .collect();
    let spec =
        format!("{{pools: [{{name: P, size: 3}}], processingElements: [{}]}}", elements.join(","));
    let findings = checked(&spec, &view(), &Policy::default());
    assert_eq!(findings.len(), 7, "{findings:?}");
    assert!(findings.iter().all(|finding| finding.reason == Reason::TooManyExlocated));
}
