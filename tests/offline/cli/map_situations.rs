//! The situations of the documents, in all forms.

use std::fs;
use std::path::Path;

use super::command::{Output, assert_snapshot, run};
use super::pictures::{SITUATIONS, Situation};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn draw(situation: &Situation, form: &str) -> Output {
    let words = format!("map --cluster {} -o {form}", situation.cluster);
    let output = run(&words, situation.input());
    assert_eq!(output.code, 0, "{}: {output:?}", situation.name);
    output
}

#[test]
fn each_situation_is_drawn_as_text_picture_and_page() {
    for situation in &SITUATIONS {
        let name = situation.name;
        let text = draw(situation, "text").stdout;
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
        assert!(!text.contains('\u{1b}'), "{name}: escape sequences in a pipe");
        assert_snapshot(&format!("map_{name}"), &text);

        let path = Path::new(ROOT).join(format!("docs/pictures/{name}.svg"));
        let picture = draw(situation, "svg").stdout;
        if std::env::var_os("STOWPLAN_REFRESH").is_some() {
            fs::write(&path, &picture).expect("the folder exists");
        }
        let known = fs::read_to_string(&path).unwrap_or_default();
        let stale = "is stale: STOWPLAN_REFRESH=1 cargo test --test offline map_situations";
        assert!(known == picture, "{} {stale}", path.display());
        assert!(picture.len() <= 150_000, "{name}: {} bytes", picture.len());

        // The page has the picture and everything that waits, and loads nothing.
        let page = draw(situation, "html").stdout;
        assert!(page.contains(picture.trim_end()), "{name}");
        let body = page.replace("http://www.w3.org/2000/svg", "");
        for loads in ["http://", "https://", "<script", "<link", "@import", "<img"] {
            assert!(!body.contains(loads), "{name}: {loads}");
        }
        let map = draw(situation, "json").json();
        for waiting in map["waiting"].as_array().expect("a list") {
            for object in waiting["objects"].as_array().expect("a list") {
                let object = object.as_str().expect("a name");
                assert!(page.contains(object), "{name}: {object}");
            }
        }
    }
}

#[test]
fn what_check_says_of_a_waiting_run_is_beside_the_map() {
    let run_files = &SITUATIONS[1];
    let map = draw(run_files, "json").json();
    let words = format!("check -n default --cluster {} -o json", run_files.cluster);
    let checked = run(&words, "");
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
