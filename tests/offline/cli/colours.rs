//! Colours: where they are, and that they add nothing else.

use std::path::Path;

use anstream::adapter::strip_str;

use super::command::{Folder, JOB, NODES, Output, run_with};
use crate::documents::ROOT;

const FORCED: (&str, &str) = ("CLICOLOR_FORCE", "1");

/// A command with colours, whose escape sequences are the only difference to what it prints without.
fn coloured(folder: &Path, words: &str) -> Output {
    let plain = run_with(folder, words, b"", &[]);
    let coloured = run_with(folder, words, b"", &[FORCED]);
    assert!(!plain.stdout.contains('\u{1b}'), "{words}: escape sequences in a pipe");
    assert_ne!(coloured.stdout, plain.stdout, "{words}");
    assert_eq!(strip_str(&coloured.stdout).to_string(), plain.stdout, "{words}");
    assert_eq!(coloured.code, plain.code, "{words}");
    let without = run_with(folder, words, b"", &[FORCED, ("NO_COLOR", "1")]);
    assert_eq!(without.stdout, plain.stdout, "{words}");
    coloured
}

#[test]
fn what_waits_is_red_and_its_remedy_cyan_in_check_and_map() {
    let root = Path::new(ROOT);
    let output = coloured(root, "check pod/trades-score --cluster examples/waiting.yaml");
    output.shows(
        1,
        &[
            "\n\u{1b}[1mPod default/trades-score\u{1b}[0m\n",
            "\n\u{1b}[31m  obstacle   HostPool fast: member 1, node node-7, is cordoned\u{1b}[0m\n\
             \u{1b}[36m  remedy     kubectl uncordon node-7\u{1b}[0m\n",
        ],
    );
    coloured(root, "check -n default --cluster examples/waiting.yaml");
    coloured(root, "check node/node-1 --cluster examples/nodes.yaml")
        .shows(0, &["\n\u{1b}[32m  obstacle   none\u{1b}[0m\n"]);
    let output = coloured(root, "map --cluster examples/waiting-run.yaml");
    output.shows(0, &["\u{1b}[31mnode node-1 is cordoned;", "\u{1b}[36m→ kubectl uncordon node-1"]);
}

#[test]
fn a_plan_has_the_colours_of_its_verdicts() {
    let folder = Folder::new(&[("job.yaml", JOB), ("nodes.yaml", NODES)]);
    coloured(folder.0.path(), "plan -f job.yaml --cluster nodes.yaml").shows(
        1,
        &[
            "\u{1b}[1mPod default/pe-0\u{1b}[0m: \u{1b}[32mplaced\u{1b}[0m\n",
            "\u{1b}[1mPod default/lost-00000\u{1b}[0m: \u{1b}[31mrefused (422)\u{1b}[0m\n\
             \x20 \u{1b}[31mMissingLabel: ",
        ],
    );
    let group = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: \
                 {stowplan.dev/coschedule-group: g}}\nspec: {nodeName: n1, containers: [{name: c, \
                 image: i}]}\n";
    folder.write("group.yaml", group.as_bytes());
    coloured(folder.0.path(), "plan -f group.yaml")
        .shows(0, &["  \u{1b}[33mwarning: stowplan.dev/coschedule-group: spec.nodeName "]);
    let output = run_with(folder.0.path(), "plan -f job.yaml -o json", b"", &[FORCED]);
    assert!(!output.stdout.contains('\u{1b}'), "colours are for people");
}

#[test]
fn users_cannot_colour_or_control_the_terminal() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: \
               {streams.ibm.com/host: \"\\e[31mred\\e]8;;http://x\\a\\u202e\"}}\n\
               spec: {containers: [{name: c, image: i}]}\n";
    let folder = Folder::new(&[("pod.yaml", pod)]);
    for words in ["plan -f pod.yaml", "check pod/p --cluster pod.yaml"] {
        let output = coloured(folder.0.path(), words);
        assert!(output.stdout.contains("\\u{1b}[31mred\\u{1b}]8;;http://x\\u{7}\\u{202e}"));
        assert!(!strip_str(&output.stdout).to_string().contains(['\u{7}', '\u{202e}']));
    }
}
