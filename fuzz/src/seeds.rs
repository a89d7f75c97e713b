//! First inputs for the targets, from the fixtures of the product and the forms that its parsers
//! know.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stowplan_core::placement::record;

use self::shared::Shared;
use crate::{CLAIMS, PODS, pods, review_of};

/// The reader of bases and parts, which the suite of the fixtures has.
#[path = "../../tests/offline/fixtures/shared.rs"]
#[allow(dead_code, reason = "the seeds are not a suite")]
mod shared;

/// The longest seed that is worth mutating, in bytes.
const MAX_SEED: usize = 16 * 1024;

/// The seeds of the target `name`, without duplicates.
///
/// # Panics
/// Where a fixture cannot be read.
pub fn of(name: &str) -> Vec<Vec<u8>> {
    let mut seeds = match name {
        "review" => reviews(),
        "keys" => keys(),
        "record" => in_contexts(values(record::KEY, RECORDS)),
        "affinity" => in_contexts(affinities()),
        "policy" => {
            let policies =
                sections("policy").into_iter().map(|policy| policy.to_string().into_bytes());
            policies.chain(POLICIES.map(bytes)).collect()
        }
        "documents" => documents(),
        "host" => in_contexts(values("streams.ibm.com/host", HOSTS)),
        "host_pool" => in_contexts(values("streams.ibm.com/host-pool", POOLS)),
        "host_colocation" => in_contexts(values("streams.ibm.com/host-colocation", TOKENS)),
        "host_exlocation" => in_contexts(values("streams.ibm.com/host-exlocation", TOKENS)),
        "host_isolation" => in_contexts(values("streams.ibm.com/host-isolation", TOKENS)),
        "coschedule_group" => in_contexts(values("stowplan.dev/coschedule-group", GROUPS)),
        "mpi" => in_contexts(CLUSTERS.iter().map(|text| bytes(text)).collect()),
        "numa" => in_contexts(AFFINITIES.iter().map(|text| bytes(text)).collect()),
        "claim" => in_contexts(claim_specs()),
        "host_enforcement" => in_contexts(values("streams.ibm.com/host-enforcement", ENFORCEMENTS)),
        _ => panic!("no target is called {name}"),
    };
    seeds.retain(|seed| seed.len() <= MAX_SEED);
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}

const CLUSTERS: &[&str] = &[
    "slots=3",
    "slots=0\nslots=100000",
    "role=worker\nssh-dir=/mnt/ssh",
    "role=launcher\nimplementation=intel\nlauncher-as-worker=true",
    "container=side\nssh-port=2222",
    "container=none\nssh-dir=/a/../b",
    "cluster=1c\nworkers=3",
    "clean-up=workers\nclean-up=all",
];

const AFFINITIES: &[&str] = &[
    r#"{"required":[{"matchLabels":{"role":"ps"},"zone":"numa"}]}"#,
    r#"{"required":[{"matchLabels":{"role":"ps","app":"x"},"zone":"socket"},{"matchLabels":{}}],"preferred":[{"matchLabels":{"a":"b"}}]}"#,
    "{\"required\":[]}\n{\"required\":[{\"matchLabels\":{\"role\":\"worker\"}}]}",
    "null\nnull",
    "{}\n{\"preferred\":null}",
    r#"{"Required":[null,{"matchlabels":{"role":1},"zone":"NUMA"}]}"#,
];

const HOSTS: &[&str] = &[
    "n1",
    "ALIAS",
    "twin",
    "10.0.0.2",
    "::ffff:10.0.0.2",
    "2001:DB8::1",
    "10.0.0.02",
    "192.0.2.1",
    "away",
    "n1:22",
];

const POOLS: &[&str] = &[
    "literal",
    "literal[0]",
    "literal[3]",
    "literal[4]",
    "one",
    "away",
    "twice",
    "ambiguous[1]",
    "tagged",
    "tags",
    "untagged",
    "any",
    "any[0]",
    "sized",
    "broken",
    "nobody",
    "literal[00]",
    "literal[4294967296]",
    "l[",
];

const TOKENS: &[&str] = &[
    "together",
    "apart",
    "Main.Sink[0]",
    "é/ü",
    "[\"a\",\"b c\"]",
    "[\"\\u0041\\ud83d\\ude00\"]",
    "\"a\"",
    "[]",
    "true",
    " a",
];

const ENFORCEMENTS: &[&str] = &["required", "preferred", "Preferred", "none"];

const GROUPS: &[&str] = &["g", "a.B_c-9", "", " g", "-", "g/h", "é", "[\"g\"]"];

const CLAIM_SPECS: &[&str] = &[
    "null",
    "{}",
    "[]",
    r#"{"storageClassName":null,"accessModes":null,"volumeName":null,"selector":null}"#,
    r#"{"storageClassName":"","accessModes":["ReadWriteMany"]}"#,
    r#"{"storageClassName":"fast","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}"#,
    r#"{"storageClassName":"fast","volumeName":"v","selector":{"matchLabels":{"a":"b"}}}"#,
    r#"{"storageClassName":"wait","dataSource":{"kind":"PersistentVolumeClaim","name":"c"}}"#,
];

const RECORDS: &[&str] = &[
    r#"{"v":1,"streams":["host=n1: node n1"],"more":0}"#,
    r#"{"v":1,"streams":["host=gone: node n9"],"more":0}"#,
    r#"{"v":1,"streams":["host-pool=gone[1]: node n2"],"more":0}"#,
    r#"{"v":1,"streams":["host-pool=literal: one of 2 nodes","host=n1: node n1"],"more":3}"#,
    r#"{"v":1,"streams":["host-pool=tagged: nodes tagged ib"],"more":0}"#,
    r#"{"v":1,"streams":["host-pool=tagged: nodes tagged ib and blue"],"more":0}"#,
    r#"{"v":2,"other":[],"streams":[],"more":0}"#,
];

const POLICIES: [&str; 6] = [
    "onInvalid: warn\nrecordPlacement: false\nexcludedNamespaces: [a, b]\nrepair: recreatePending\n",
    "hostPools: {enabled: false, nodeSelector: {a: b}, namespaces: {c: d}, maxExclusiveNodesPerNamespace: 0}\n",
    "streams: {enabled: true, compat: upstream}\nmpi: {enabled: true, clusterDomain: cluster.local, namespaces: {}}\n",
    "coschedule: {enabled: true, mode: isolate-pipelinerun, binding: auto, volumes: provision, classMap: {}}\n",
    "coschedule: {groupTTL: 5m, placeholder: {image: \"\", requests: {cpu: 10m, memory: 16Mi}}}\n",
    "katalyst: {mode: enforced, declaredLabels: [role]}\nstreams: &a {compat: none}\n",
];

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Each input behind each first byte that means something: see `in_context`.
fn in_contexts(inputs: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let context = |byte: u8| inputs.iter().map(move |input| [&[byte], input.as_slice()].concat());
    (0..24).flat_map(context).collect()
}

/// The values of an annotation in all fixtures, and more.
fn values(key: &str, more: &[&str]) -> Vec<Vec<u8>> {
    let found = pods().into_iter().filter_map(|pod| {
        Some(bytes(pod.get("metadata")?.get("annotations")?.get(key)?.as_str()?))
    });
    found.chain(more.iter().map(|text| bytes(text))).collect()
}

fn keys() -> Vec<Vec<u8>> {
    let keys = |pod: Value| {
        let annotations = pod["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        annotations.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join("\n").into_bytes()
    };
    pods().into_iter().map(keys).filter(|keys| !keys.is_empty()).collect()
}

fn claim_specs() -> Vec<Vec<u8>> {
    let spec = |claim: Value| serde_json::to_vec(&claim["spec"]).expect("JSON");
    claims().into_iter().map(spec).chain(CLAIM_SPECS.iter().map(|spec| bytes(spec))).collect()
}

fn affinities() -> Vec<Vec<u8>> {
    let found = pods().into_iter().map(|pod| pod["spec"]["affinity"].clone());
    found
        .chain(pods::affinities())
        .map(|affinity| serde_json::to_vec(&affinity).expect("JSON"))
        .collect()
}

/// The recorded reviews without what no decision reads, the fixtures' own, and their pods and
/// claims as reviews.
fn reviews() -> Vec<Vec<u8>> {
    let written = sections("review").into_iter().map(|review| bytes(&review.to_string()));
    let mut reviews: Vec<Vec<u8>> =
        files(&[".json"]).into_iter().chain(written).filter_map(|text| slim(&text)).collect();
    reviews.extend(pods().iter().map(|pod| review_of(PODS, pod)));
    reviews.extend(claims().iter().map(|claim| review_of(CLAIMS, claim)));
    reviews
}

fn slim(text: &[u8]) -> Option<Vec<u8>> {
    let mut review: Value = serde_json::from_slice(text).ok()?;
    for (path, member) in [
        ("/request/object/metadata", "managedFields"),
        ("/request", "userInfo"),
        ("/request", "options"),
    ] {
        review.pointer_mut(path).and_then(Value::as_object_mut).map(|parent| parent.remove(member));
    }
    // Recorded pods and claims carry no constraint; with one, a mutation gets further.
    let key = match review["request"]["resource"]["resource"].as_str() {
        Some(CLAIMS) => "stowplan.dev/coschedule-group",
        _ => "streams.ibm.com/host",
    };
    let annotations =
        review.pointer_mut("/request/object/metadata").map(|metadata| &mut metadata["annotations"]);
    if let Some(annotations @ (Value::Null | Value::Object(_))) = annotations {
        annotations[key] = json!("n1");
    }
    serde_json::to_vec(&review).ok()
}

fn documents() -> Vec<Vec<u8>> {
    let mut documents = files(&[".yaml"]);
    documents.extend(
        [
            "{\"kind\": \"List\"}{}",
            "--- |\n a\n...\n# c\n---\n? a\n: [b, *c]\n",
            "a: &a [x]\nb: [*a, *a]\n<<: {c: 0644}\n",
        ]
        .map(bytes),
    );
    documents
}

/// Every pod in the fixtures and examples.
fn pods() -> Vec<Value> {
    let mut pods = sections("pod");
    pods.extend(objects(&["examples/streams-job.yaml", "examples/refused.yaml"]));
    pods
}

/// Every claim in the fixtures.
fn claims() -> Vec<Value> {
    sections("claim")
}

/// This section of each case that has it, without bases and parts.
fn sections(name: &str) -> Vec<Value> {
    let shared = Shared::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures"));
    let shared = shared.expect("the shared files can be read");
    let cases = objects(&[".yaml"]);
    let found: Vec<_> = cases
        .into_iter()
        .filter(|case| case.get("why").is_some())
        .filter_map(|mut case| case.as_object_mut()?.remove(name))
        .map(|section| shared.expand(section).expect("the case refers to files that exist"))
        .collect();
    assert!(!found.is_empty(), "no case has `{name}`");
    found
}

/// The objects in the files whose path ends in one of `endings`.
fn objects(endings: &[&str]) -> Vec<Value> {
    let texts = files(endings);
    let texts = texts.iter().filter_map(|text| str::from_utf8(text).ok());
    texts.flat_map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap_or_default()).collect()
}

/// The files of the product's folders whose path ends in one of `endings`.
fn files(endings: &[&str]) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut folders = vec![root.join("fixtures"), root.join("examples")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a folder of the product");
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("readable").path()).collect();
        paths.sort_unstable();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path
                .to_str()
                .is_some_and(|path| endings.iter().any(|ending| path.ends_with(ending)))
            {
                found.push(fs::read(&path).expect("a file of the product"));
            }
        }
    }
    assert!(!found.is_empty(), "no file ends in one of {endings:?}");
    found
}
