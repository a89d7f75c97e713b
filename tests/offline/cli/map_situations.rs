//! The situations of the documents, in all forms.

use std::fs;
use std::path::Path;

use testbed::pictures::{SITUATIONS, Situation};

use super::command::{Output, assert_snapshot, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn draw(situation: &Situation, form: &str) -> Output {
    let arguments = situation.arguments().into_iter().chain(["-o", form]);
    let output = run(arguments, &situation.input());
    assert_eq!(output.code, 0, "{}: {output:?}", situation.name);
    output
}

#[test]
fn the_text_form_of_each_situation() {
    for situation in SITUATIONS {
        let text = draw(situation, "text").stdout;
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{}: {wide:#?}", situation.name);
        assert!(!text.contains('\u{1b}'), "{}: escape sequences in a pipe", situation.name);
        assert_snapshot(&format!("map_{}", situation.name), &text);
    }
}

#[test]
fn the_pictures_of_the_documents_are_what_the_binary_draws() {
    for situation in SITUATIONS {
        let path = Path::new(ROOT).join(format!("docs/pictures/{}.svg", situation.name));
        let known = fs::read_to_string(&path).unwrap_or_default();
        let drawn = draw(situation, "svg").stdout;
        assert!(known == drawn, "{} is stale: cargo testbed pictures", path.display());
        assert!(drawn.len() <= 150_000, "{}: {} bytes", situation.name, drawn.len());
    }
}

#[test]
fn the_page_of_each_situation_has_its_picture_and_everything_that_waits() {
    for situation in SITUATIONS {
        let page = draw(situation, "html").stdout;
        let picture = draw(situation, "svg").stdout;
        assert!(page.contains(picture.trim_end()), "{}", situation.name);
        let loads = ["http://", "https://", "<script", "<link", "@import", "<img"];
        let body = page.replace("http://www.w3.org/2000/svg", "");
        let loaded = loads.iter().find(|loads| body.contains(**loads));
        assert_eq!(loaded, None, "{} loads something", situation.name);
        let map = draw(situation, "json").json();
        for waiting in map["waiting"].as_array().expect("a list") {
            for object in waiting["objects"].as_array().expect("a list") {
                let object = object.as_str().expect("a name");
                assert!(page.contains(object), "{}: {object}", situation.name);
            }
        }
    }
}

#[test]
fn what_check_says_of_a_waiting_run_is_beside_the_map() {
    let run_files = &SITUATIONS[1];
    let map = draw(run_files, "json").json();
    let checked =
        run(["check", "-n", "default", "--cluster", run_files.files[0], "-o", "json"], b"");
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
