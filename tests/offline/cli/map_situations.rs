//! The situations of the documents, in all forms.

use super::command::{Output, assert_snapshot, run};
use super::pictures::{self, RUN, SITUATIONS};
use crate::documents::assert_current;

/// The map of these files, or of the cluster with this number of nodes on standard input.
fn draw(cluster: &str, nodes: usize, form: &str) -> Output {
    let input = pictures::cluster(nodes).to_string();
    let output = run(&format!("map --cluster {cluster} -o {form}"), input);
    assert_eq!(output.code, 0, "{output:?}");
    output
}

#[test]
fn each_situation_is_drawn_as_text_picture_and_page() {
    for (name, cluster, nodes) in SITUATIONS {
        let text = draw(cluster, nodes, "text").stdout;
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
        assert!(!text.contains('\u{1b}'), "{name}: escape sequences in a pipe");
        assert_snapshot(&format!("map_{name}"), &text);

        let picture = draw(cluster, nodes, "svg").stdout;
        assert_current(&format!("docs/pictures/{name}.svg"), &picture, "map_situations");
        assert!(picture.len() <= 150_000, "{name}: {} bytes", picture.len());

        // The page has the picture and everything that waits, and loads nothing.
        let page = draw(cluster, nodes, "html").stdout;
        assert!(page.contains(picture.trim_end()), "{name}");
        let body = page.replace("http://www.w3.org/2000/svg", "");
        for loads in ["http://", "https://", "<script", "<link", "@import", "<img"] {
            assert!(!body.contains(loads), "{name}: {loads}");
        }
        let map = draw(cluster, nodes, "json").json();
        for waiting in map["waiting"].as_array().expect("a list") {
            assert_ne!(waiting["more"], 0, "{name}");
            for object in waiting["objects"].as_array().expect("a list") {
                let object = object.as_str().expect("a name");
                assert!(page.contains(object), "{name}: {object}");
            }
        }
    }
}

#[test]
fn what_check_says_of_a_waiting_run_is_beside_the_map() {
    let map = draw(RUN, 0, "json").json();
    let checked = run(&format!("check -n default --cluster {RUN} -o json"), "");
    assert_eq!(checked.code, 1, "{checked:?}");
    let waiting = map["waiting"].as_array().expect("a list");
    assert!(!waiting.is_empty());
    let own = waiting.iter().filter(|of| of.get("remedy").is_some());
    for of in own {
        let why = of["why"].as_str().expect("a sentence");
        let quoted = serde_json::to_string(why).expect("a text");
        assert!(checked.stdout.contains(&quoted), "{why}: {}", checked.stdout);
    }
}

#[test]
fn pods_on_nodes_are_marked_if_something_is_wrong_with_them() {
    let cluster = std::fs::read_to_string("examples/map-mpi.yaml").expect("the example");
    let status = r#"conditions: [{type: Ready, status: "True"}]
    containerStatuses: [{name: worker, image: i, imageID: i, ready: true, restartCount: 0, state: {running: {}}}]"#;
    let waits = r#"conditions: [{type: Ready, status: "False"}]
    containerStatuses: [{name: worker, image: i, imageID: i, ready: false, restartCount: 0, state: {waiting: {reason: ImagePullBackOff}}}]"#;
    for (cluster, expected) in
        [(cluster.clone(), &[][..]), (cluster.replacen(status, waits, 1), &["pi-workers-0"])]
    {
        let output = run("map --cluster - -o json", cluster);
        assert_eq!(output.code, 0, "{output:?}");
        let map = output.json();
        let nodes = map["nodes"].as_array().expect("a list").iter();
        let pods = nodes.flat_map(|node| node["pods"].as_array().expect("a list"));
        let marked: Vec<&str> = pods
            .filter(|pod| pod["hasObstacle"] == true)
            .map(|pod| pod["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(marked, expected);
    }
}

#[test]
fn the_map_quotes_autoscalers() {
    let event = serde_json::json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "affinity-assistant-ffad17287a-0", "uid": "p1"},
        "source": {"component": "karpenter"}, "reason": "FailedScheduling", "message": "no shape is large enough",
    });
    for form in ["text", "html", "json"] {
        let arguments = format!("map --cluster {RUN} --cluster - -o {form}");
        let output = run(&arguments, event.to_string());
        assert_eq!(output.code, 0, "{output:?}");
        let says = "karpenter: FailedScheduling: no shape is large enough";
        assert!(output.stdout.contains(says), "{form}: {}", output.stdout);
    }
}
