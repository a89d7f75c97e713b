use super::*;

fn closure(spec: &str) -> Closure {
    Closure::of("parallel", "uid", &serde_saphyr::from_str(spec).unwrap())
}

fn groups(closure: &Closure) -> Vec<Vec<usize>> {
    closure.units.iter().map(|unit| unit.elements.clone()).collect()
}

#[test]
fn elements_are_joined_through_chains_of_tokens() {
    let closure = closure(
        "{processingElements: [{name: a, operators: [{name: A, hostColocation: [x]}]}, {name: free}, {name: b, operators: [{name: B, hostColocation: [x, z]}]}, {name: c, operators: [{name: C}, {name: D, hostColocation: [z]}]}]}",
    );
    assert_eq!(groups(&closure), [vec![0, 2, 3], vec![1]]);
    assert_eq!(closure.units[0].group.as_deref(), Some(&*host_pool::hash("uid/a")));
    assert_eq!(closure.units[1].group, None);
    assert_eq!(closure.element("c"), Some(3));
    assert_eq!(closure.unit_of(3), Some(&closure.units[0]));
}

#[test]
fn a_common_host_or_member_joins_elements_and_a_common_pool_does_not() {
    let closure = closure(
        "{pools: [{name: P, size: 3}, {name: L, hosts: [n1, n2]}], processingElements: [\
         {name: a, operators: [{name: A, host: {name: n1}}]},\
         {name: b, operators: [{name: B, host: {pool: L, index: 0}}]},\
         {name: c, operators: [{name: C, host: {pool: P, index: 1}}]},\
         {name: d, operators: [{name: D, host: {pool: P, index: 1}}]},\
         {name: e, operators: [{name: E, host: {pool: P, index: 2}}]},\
         {name: f, operators: [{name: F, host: {pool: P}}]},\
         {name: g, operators: [{name: G, host: {pool: P}}]},\
         {name: h, operators: [{name: H, host: {address: '10.0.0.1'}}]},\
         {name: i, operators: [{name: I, host: {address: '::ffff:10.0.0.1'}}]}]}",
    );
    let expected = [vec![0, 1], vec![2, 3], vec![4], vec![5], vec![6], vec![7, 8]];
    assert_eq!(groups(&closure), expected);
}

#[test]
fn a_host_pool_has_a_valid_name_that_no_other_pool_has() {
    assert_eq!(host_pool_name("parallel", "P2"), "parallel-p2-acbbb");
    assert_ne!(host_pool_name("parallel", "My_Pool"), host_pool_name("parallel", "my_pool"));
    assert_ne!(host_pool_name("a-b", "c"), host_pool_name("a", "b_c"));
    let long = format!("{}.{}", "j".repeat(200), "k".repeat(40));
    let (one, other) =
        (host_pool_name(&long, "Pool_number_1"), host_pool_name(&long, "Pool_number_2"));
    assert!(one != other && one.len() <= LONGEST_NAME, "{one}");
    // The cut may come after a dot.
    let dotted = format!("{}.{}", "j".repeat(241), "k");
    assert!(!host_pool_name(&dotted, "P").contains(".-"));
}
