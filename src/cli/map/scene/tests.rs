use serde_json::{Value, json};

use super::*;
use crate::cli::map::layout::{Label, Rect, width_of};
use crate::cli::map::{html, svg, text};
use crate::cli::page::Painter;
use stowplan_core::systems::check::{Cluster, Context};
use stowplan_core::systems::policy::Policy;

/// The map of these objects.
fn map(objects: &[Value]) -> Map {
    let mut cluster = Cluster::default();
    for object in objects {
        match object["kind"].as_str() {
            Some("Node") => cluster.add_node(serde_json::from_value(object.clone()).unwrap()),
            Some("Pod") => cluster.add_pod(serde_json::from_value(object.clone()).unwrap()),
            _ => {
                let object = stowplan_core::systems::object(object.clone()).unwrap();
                object.into_iter().for_each(|object| cluster.view.apply(object));
            }
        }
    }
    let policy = Policy::default();
    let now = "2026-11-24T00:00:00Z".parse().unwrap();
    let pods = crate::cli::check::CHECKS_OF_WAITING;
    let context = Context { cluster: &cluster, policy: &policy, now, pods };
    let mut map = Map::new(&context, None);
    map.add_waiting(&crate::cli::check::diagnose_everything(&context, &[], None).unwrap());
    map
}

fn node(name: &str, zone: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A pod of a job; without a node it waits.
fn pod(name: &str, job: &str, node: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default",
            "labels": {"app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

fn job(name: &str, nodes: &[(&str, &[&str])]) -> Value {
    let nodes: Vec<Value> = nodes
        .iter()
        .map(|(node, elements)| json!({"name": node, "processingElements": elements}))
        .collect();
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"processingElements": [{"name": "a"}]},
        "status": {"witness": {"since": "2026-11-24T00:00:00Z", "nodes": nodes}}})
}

/// Texts of users who can write anything.
fn evil() -> Vec<String> {
    // The tests of the binary have names of 256 KiB.
    let long = ["x".repeat(8_192), "<é&\"".repeat(2_048)];
    let short = [
        "</title></svg><script>alert(1)</script>",
        "\"'&amp;&<>]]><!--",
        "日本語の名前と絵文字🦀🦀🦀",
        "\u{0}\u{1b}[31m\u{202e}\u{feff}\u{ffff}",
        "ﷺﷺﷺ",
    ];
    short.map(str::to_owned).into_iter().chain(long).collect()
}

/// Maps in which names are short, long, missing, many and evil.
fn maps() -> Vec<(String, Map)> {
    let mut maps = vec![
        ("nothing".to_owned(), map(&[])),
        ("no nodes".to_owned(), map(&[pod("a", "j", None), pod("b", "j", Some("gone"))])),
    ];
    for count in [1, 3, 24, 25, 200, 201] {
        let mut objects = Vec::new();
        for index in 0..count {
            let name = format!("a-rather-long-name-of-a-node-{index}.example.com");
            objects.push(node(&name, ["a", "b", ""][index % 3]));
            for number in 0..(index * 7) % 23 {
                let job = format!("job-{}", (index + number) % 45);
                objects.push(pod(&format!("pod-{index}-{number}"), &job, Some(&name)));
            }
            objects.push(pod(&format!("waiting-{index}"), &format!("job-{}", index % 45), None));
        }
        objects.push(job("job-1", &[("a-rather-long-name-of-a-node-0.example.com", &["x", "y"])]));
        maps.push((format!("{count} nodes"), map(&objects)));
    }
    for text in evil() {
        let objects = [
            node(&text, &text),
            pod(&text, &text, Some(&text)),
            pod("other", &text, Some("n")),
            pod("waiting", &text, None),
            job(&text, &[(&text, &[&text, "b"])]),
        ];
        maps.push((format!("{text:.20?}"), map(&objects)));
    }
    maps
}

/// The rectangle of a text, as wide as in the widest font.
fn rect_of(label: &Label) -> Rect {
    let width = width_of(columns(&label.text), label.size);
    let y = label.y.saturating_sub(label.size * 9 / 10);
    Rect { x: label.x, y, width, height: label.size * 12 / 10 }
}

/// Finds texts and rectangles that are outside of where they belong, or over each other.
fn find_faults(block: &Block) -> Vec<String> {
    let is_inside = |inner: Rect| {
        let Rect { x, y, .. } = block.rect;
        let (right, bottom) = (block.rect.right(), block.rect.bottom());
        inner.x >= x && inner.y >= y && inner.right() <= right && inner.bottom() <= bottom
    };
    let are_apart = |one: Rect, other: Rect| {
        let beside = one.x >= other.right() || other.x >= one.right();
        beside || one.y >= other.bottom() || other.y >= one.bottom()
    };
    let labels = block.labels.iter().map(|label| (rect_of(label), format!("{:?}", label.text)));
    let blocks = block.blocks.iter().map(|inner| (inner.rect, format!("{:?}", inner.look)));
    let all: Vec<(Rect, String)> = labels.chain(blocks).collect();
    let mut faults: Vec<String> = block.blocks.iter().flat_map(find_faults).collect();
    for (index, (rect, name)) in all.iter().enumerate() {
        if !is_inside(*rect) {
            faults.push(format!("{name} {rect:?} is outside of {:?} {:?}", block.look, block.rect));
        }
        let over = all[index + 1..].iter().filter(|(other, _)| !are_apart(*rect, *other));
        faults.extend(over.map(|(other, of)| format!("{name} {rect:?} is over {of} {other:?}")));
    }
    faults
}

#[test]
fn the_widths_of_texts_are_those_of_a_wide_monospaced_font() {
    assert_eq!(width_of(10, 12), 75);
    assert_eq!(columns_in(75, 12), 10);
}

/// The names of the elements of a document, which has to be well formed.
fn elements(document: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(document);
    let mut names = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Start(of) | quick_xml::events::Event::Empty(of) => {
                names.push(of.name().as_ref().to_owned());
            }
            quick_xml::events::Event::Eof => return names,
            _ => {}
        }
    }
}

#[test]
fn nothing_overlaps_and_texts_of_users_never_become_markup_or_control_a_terminal() {
    for (name, map) in maps() {
        let faults = find_faults(&Scene::new(&map).page);
        assert!(faults.is_empty(), "{name}: {}", faults[..faults.len().min(5)].join("\n"));
        let svg = svg::write(&Scene::new(&map));
        let html = html::write(&map);
        for document in [&svg, &html] {
            let found = elements(document);
            let known = [
                "svg", "title", "style", "defs", "pattern", "path", "g", "rect", "text", "html",
                "head", "meta", "body", "div", "h2", "table", "tr", "th", "td",
            ];
            let strange = found.iter().find(|element| !known.contains(&element.as_str()));
            assert_eq!(strange, None, "{name}");
            let controls = |c: char| c.is_control() && c != '\n';
            assert!(!document.contains(controls), "{name}");
            assert!(!document.contains(['\u{ffff}', '\u{202e}']), "{name}");
        }
        let text = text::format(&map, 80, Painter { is_coloured: false });
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{name}");
        let wide: Vec<&str> = text.lines().filter(|line| columns(line) > 80).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
    }
}

#[test]
fn the_same_cluster_has_the_same_map_in_any_order() {
    let mut objects = Vec::new();
    for index in 0..30 {
        let (name, job) = (format!("n{index}"), format!("j{}", index % 4));
        objects.push(node(&name, "a"));
        objects.push(pod(&format!("p{index}"), &job, Some(&name)));
        objects.push(pod(&format!("w{index}"), &job, None));
    }
    let reversed: Vec<Value> = objects.iter().rev().cloned().collect();
    let write = |objects: &[Value]| svg::write(&Scene::new(&map(objects)));
    assert_eq!(write(&objects), write(&reversed));
}

#[test]
fn a_reserved_slot_is_drawn_until_its_pod_is_there() {
    let slots = |pods: &[Value]| {
        let mut objects = vec![node("n1", "a"), job("j", &[("n1", &["a", "b"])])];
        objects.extend_from_slice(pods);
        let reserved = map(&objects).nodes.remove(0).reserved;
        reserved.iter().map(|of| of.label.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(slots(&[]), ["a", "b"]);
    assert_eq!(slots(&[pod("a", "j", None)]), ["a", "b"]);
    assert_eq!(slots(&[pod("a", "j", Some("n1"))]), ["b"]);
    let mut ended = pod("a", "j", Some("n1"));
    ended["status"] = json!({"phase": "Succeeded"});
    assert_eq!(slots(&[ended]), ["a", "b"]);
}

/// The text of one node with one pod.
fn text_of(node: &str, width: usize, coloured: bool) -> String {
    let node_object = json!({"kind": "Node", "metadata": {"name": node}});
    text::format(
        &map(&[node_object, pod("p", "j", Some(node))]),
        width,
        Painter { is_coloured: coloured },
    )
}

#[test]
fn colours_add_nothing_but_escape_sequences() {
    let coloured = text_of("n1", 60, true);
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), text_of("n1", 60, false));
}

#[test]
fn a_narrow_terminal_gets_narrow_lines() {
    for width in [0, 1, 40, 60] {
        let text = text_of(&"a-very-long-name".repeat(10), width, false);
        let most = width.max(text::NARROWEST);
        assert!(text.lines().all(|line| columns(line) <= most), "{text}");
    }
}

#[test]
fn a_pod_of_an_unknown_node_is_on_a_node_of_its_own() {
    let map = map(&[node("n10", ""), node("n9", ""), pod("p", "j", Some("gone"))]);
    let names: Vec<&str> = map.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["n9", "n10", "gone"]);
    assert_eq!(map.nodes[2].states, ["unknown"]);
}
