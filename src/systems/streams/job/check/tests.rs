//! Checks of jobs that can be placed, and of jobs that cannot.

use k8s_openapi::api::core::v1 as core;
use serde_json::json;

use super::*;
use crate::systems;
use crate::systems::streams::api::StreamsJob as Written;
use crate::view::Scope;

/// Three nodes: n1 and n2 have the tags `ib` and `blue`, and n1 also has the single tag `source`.
fn view() -> View {
    let mut view = View::default();
    for (name, address, tags) in [
        (
            "n1",
            "10.8.5.6",
            json!({"hostpool.streams.ibm.com/ib": "", "hostpool.streams.ibm.com/blue": "", "streams.ibm.com/hostpool": "source"}),
        ),
        (
            "n2",
            "10.8.5.7",
            json!({"hostpool.streams.ibm.com/ib": "", "hostpool.streams.ibm.com/blue": ""}),
        ),
        ("n3", "10.8.5.8", json!({})),
    ] {
        let node: core::Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": tags},
            "status": {"addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalDNS", "address": "shared.internal"},
                {"type": "InternalIP", "address": address},
            ]},
        }))
        .unwrap();
        view.apply(systems::project(&node, Scope::Admission).unwrap());
    }
    view
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

#[test]
fn a_job_that_can_be_placed_is_accepted() {
    for spec in [
        "{}".to_owned(),
        "{processingElements: [{name: a}]}".to_owned(),
        two("", "", ""),
        two("", ", host: {name: n1}", ", host: {address: 10.8.5.7}"),
        two("", ", host: {name: n1}, hostColocation: [t]", ", host: {address: 10.8.5.6}, hostColocation: [t]"),
        // Colocation x and exlocation x are two tokens.
        two("", ", hostColocation: [x]", ", hostColocation: [x], hostExlocation: [x]"),
        two("{name: P, size: 2}", ", host: {pool: P, index: 0}", ", host: {pool: P, index: 1}, hostExlocation: [t]"),
        two("{name: P, size: 2}", ", host: {pool: P}, hostExlocation: [t]", ", host: {pool: P}, hostExlocation: [t]"),
        two("{name: P, size: 2, tags: [ib, blue], exclusivity: Exclusive}", ", host: {pool: P}, hostColocation: [t]", ", hostColocation: [t]"),
        two("{name: P, hosts: [n1, n2]}, {name: Q, hosts: [n2, n3]}", ", host: {pool: P}, hostColocation: [t]", ", host: {pool: Q}, hostColocation: [t]"),
        two("{name: P, hosts: [n1, n2]}", ", host: {pool: P, index: 1}, hostColocation: [t]", ", host: {name: n2}, hostColocation: [t]"),
        two("{name: P, tags: [source]}", ", host: {pool: P}, hostColocation: [t]", ", host: {name: n1}, hostColocation: [t]"),
        // Whether a host is of a sized pool is not known before its hosts are picked.
        two("{name: P, size: 2}", ", host: {pool: P}, hostColocation: [t]", ", host: {name: n1}, hostColocation: [t]"),
        two("", ", hostIsolation: true", ""),
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
        (two("", &(host("name: n1") + apart), &(host("name: n1") + apart)), R::ExlocatedTogether, &["\"A\"", "\"B\""]),
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
        (two("{name: P, size: 0}", "", ""), R::MalformedPool, &["size 0"]),
        (two("{name: P, hosts: []}", "", ""), R::MalformedPool, &["0 hosts"]),
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
    let pool = |name: &str, namespace: &str, owner: Option<&str>| {
        let owners = owner.map(|uid| json!([{"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "name": "parallel", "uid": uid, "controller": true}]));
        let pool = json!({
            "apiVersion": "stowplan.dev/v1alpha1",
            "kind": "HostPool",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
            "spec": {"size": 1, "exclusivity": "Exclusive"},
        });
        systems::object(pool).unwrap().unwrap()
    };
    let (_, own) = job(&spec);
    view.apply(pool(&own.closure.pools[0].host_pool, "ns", Some("5f1d6b0e")));
    view.apply(pool("others", "elsewhere", None));
    assert_eq!(checked(&spec, &view, &policy), [], "its own, and another namespace's");
    view.apply(pool("others", "ns", None));
    let findings = checked(&spec, &view, &policy);
    assert_eq!(findings[0].reason, Reason::TooManyExclusiveNodes, "{findings:?}");
    assert!(findings[0].problem.contains("2 exclusive hosts beside 1"), "{}", findings[0]);
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

/// The constraints of an element of a small job: host, colocation, exlocation, isolation.
type Element = (Option<Location>, Option<u8>, Option<u8>, bool);

/// Whether any assignment of the elements to the three nodes satisfies all constraints. Tries them
/// all.
fn fits(elements: &[Element], exclusive: bool) -> bool {
    let pools = [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]];
    (0..3_usize.pow(u32::try_from(elements.len()).unwrap())).any(|mut number| {
        let nodes: Vec<usize> = elements
            .iter()
            .map(|_| {
                let node = number % 3;
                number /= 3;
                node
            })
            .collect();
        pools.iter().any(|members| holds(elements, &nodes, members, exclusive))
    })
}

/// Whether `nodes`, the node of each element, satisfies all constraints if the hosts of the sized
/// pool are `members`.
fn holds(elements: &[Element], nodes: &[usize], members: &[usize; 2], exclusive: bool) -> bool {
    let of_pool = |index: usize| matches!(elements[index].0, Some(Location::Pool { pool: 1, .. }));
    let located = elements.iter().zip(nodes).all(|((location, ..), node)| match location {
        None => true,
        Some(Location::Host(Host::Name(name))) => **name == *format!("n{}", node + 1),
        Some(Location::Host(Host::Address(address))) => {
            address.to_string() == format!("10.8.5.{}", node + 6)
        }
        // The pool lists n1 and n2.
        Some(Location::Pool { pool: 0, index: None }) => *node < 2,
        Some(Location::Pool { pool: 0, index: Some(index) }) => *node == *index as usize,
        Some(Location::Pool { index: None, .. }) => members.contains(node),
        Some(Location::Pool { index: Some(index), .. }) => members[*index as usize] == *node,
    });
    // An element that asks for another host must not run on a host of the exclusive pool.
    let kept_out = !exclusive
        || (0..elements.len()).all(|index| {
            elements[index].0.is_none() || of_pool(index) || !members.contains(&nodes[index])
        });
    let pairs = (0..elements.len()).all(|one| {
        (0..elements.len()).filter(|other| *other != one).all(|other| {
            let ((_, together, apart, alone), same) = (&elements[one], nodes[one] == nodes[other]);
            let (_, other_together, other_apart, _) = &elements[other];
            (together.is_none() || together != other_together || same)
                && (apart.is_none() || apart != other_apart || !same)
                && !(*alone && same)
        })
    });
    located && kept_out && pairs
}

fn location_of(number: u8) -> Option<Location> {
    let pool = |pool, index| Some(Location::Pool { pool, index });
    match number {
        0 => Some(Location::Host(Host::Name("n1".into()))),
        1 => Some(Location::Host(Host::parse("10.8.5.6").unwrap())),
        2 => Some(Location::Host(Host::Name("n2".into()))),
        3 => pool(0, None),
        4 => pool(0, Some(0)),
        5 => pool(1, None),
        6 => pool(1, Some(0)),
        7 => pool(1, Some(1)),
        _ => None,
    }
}

proptest::proptest! {
    /// The check refuses no job that some assignment of nodes satisfies.
    #[test]
    fn a_job_that_fits_is_accepted(
        elements in proptest::collection::vec((0u8..14, proptest::option::of(0u8..2), proptest::option::of(0u8..2), proptest::bool::weighted(0.1)), 1..5),
        exclusive: bool,
    ) {
        let elements: Vec<Element> =
            elements.into_iter().map(|(number, together, apart, alone)| (location_of(number), together, apart, alone)).collect();
        let written = elements.iter().enumerate().map(|(index, (location, together, apart, alone))| {
            let host = match location {
                None => serde_json::Value::Null,
                Some(Location::Host(Host::Name(name))) => json!({"name": name}),
                Some(Location::Host(Host::Address(address))) => json!({"address": address}),
                Some(Location::Pool { pool, index }) => json!({"pool": (if *pool == 0 { "Listed" } else { "Sized" }), "index": index}),
            };
            let tokens = |token: &Option<u8>| token.iter().map(|token| format!("t{token}")).collect::<Vec<_>>();
            json!({"name": format!("e{index}"), "operators": [{
                "name": format!("O{index}"), "host": host, "hostIsolation": alone,
                "hostColocation": tokens(together), "hostExlocation": tokens(apart),
            }]})
        });
        let exclusivity = if exclusive { "Exclusive" } else { "Shared" };
        let spec = json!({
            "pools": [{"name": "Listed", "hosts": ["n1", "n2"]}, {"name": "Sized", "size": 2, "exclusivity": exclusivity}],
            "processingElements": written.collect::<Vec<_>>(),
        });
        if fits(&elements, exclusive) {
            let findings = checked(&spec.to_string(), &view(), &Policy::default());
            proptest::prop_assert!(findings.is_empty(), "{spec}: {findings:?}");
        }
    }
}
