use super::*;

fn read(text: &str) -> (Vec<(usize, Value)>, Vec<String>) {
    let (mut documents, mut problems) = (Vec::new(), Problems::default());
    parse_documents("f.yaml", text, &mut documents, &mut problems);
    (documents.into_iter().map(|d| (d.location.index, d.value)).collect(), problems.0)
}

#[test]
fn documents_are_split_at_yaml_markers_and_empty_ones_are_ignored() {
    let one = Value::from(1);
    let short = ["1", "1\n", "--- 1\n", "1\n...\n"];
    let long = [
        "---\n1\n",
        "--- # c\n1\n",
        "# c\n---\n1\n---\n",
        "---\n---\n1\n---\n# c\n---\nnull\n",
        "---\r\n1\r\n",
    ];
    for text in short.into_iter().chain(long) {
        assert_eq!(read(text), (vec![(1, one.clone())], vec![]), "{text:?}");
    }
    let two = vec![(1, one.clone()), (2, Value::from(2))];
    for text in [
        "1\n---\n2",
        "1\n--- # c\n2\n",
        "1\n--- 2\n",
        "%YAML 1.2\n---\n1\n...\n%YAML 1.2\n---\n2\n",
    ] {
        assert_eq!(read(text), (two.clone(), vec![]), "{text:?}");
    }
    let empty =
        ["", "\n", "# c\n", "---\n", "---\n# c\n---\n", "null\n", "~\n---\n", "%YAML 1.2\n"];
    for text in empty {
        assert_eq!(read(text), (vec![], vec![]), "{text:?}");
    }
    // Not a marker: indented, or longer.
    assert_eq!(read("a: |\n  ---\n  b\n").0, [(1, serde_json::json!({"a": "---\nb\n"}))]);
    assert_eq!(read("----\n").0, [(1, Value::from("----"))]);
}

#[test]
fn json_documents_need_no_line_break_between_them() {
    let (documents, problems) = read("{\"a\":1}{\"a\":\"\\ud83d\\ude00\"}");
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(documents[1], (2, serde_json::json!({"a": "😀"})));
}

#[test]
fn a_large_cluster_is_one_document() {
    // More values than the default budget of the YAML parser.
    let text = format!("apiVersion: v1\nkind: List\nitems: [{}]", "1,".repeat(260_000));
    let (documents, problems) = read(&text);
    assert_eq!((documents.len(), problems), (1, vec![]));
}
