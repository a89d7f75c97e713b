//! `certs/make.sh`: its certificates fit what the chart renders. Who keeps the webhook's certificate in
//! each `tls.mode` is shown by the reviewed changes (`rendering.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::helm::{Render, run, stdout};

fn make_certificates(args: &[&str]) -> Command {
    let mut make = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/certs/make.sh"));
    make.args(args);
    make
}

#[test]
fn throw_away_certificates_fit_the_chart() {
    let out = tempfile::tempdir().unwrap();
    let names = ["--namespace", "here", "--service", "my-stowplan-webhook"];
    let said = stdout(make_certificates(&names).arg("--out").arg(out.path()));
    assert!(said.contains("helm upgrade --install my-stowplan "), "{said}");
    let files = fs::read_dir(out.path()).unwrap();
    let files: BTreeSet<_> = files.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["ca.crt", "tls.crt", "tls.key"].map(Into::into).into());

    // The name that the API server checks: <service>.<namespace>.svc of the rendered configuration.
    let openssl = |words: &str| {
        stdout(Command::new("openssl").args(words.split(' ')).current_dir(out.path()))
    };
    let bundle = openssl("base64 -A -in ca.crt");
    let render = Render::bare().release("my-stowplan").namespace("here");
    let objects = render.set(&format!("tls.caBundle={bundle:?}")).objects();
    let configuration = objects.get("MutatingWebhookConfiguration", "my-stowplan");
    let service = &configuration["webhooks"][0]["clientConfig"]["service"];
    let [name, namespace] = ["name", "namespace"].map(|key| service[key].as_str().unwrap());
    let host = format!("{name}.{namespace}.svc");
    let verify = "verify -CAfile ca.crt -purpose sslserver -verify_hostname";
    let verified = openssl(&format!("{verify} {host} tls.crt"));
    assert!(verified.ends_with(": OK\n"), "{verified}");
}

#[test]
fn mistakes_in_making_certificates_are_named() {
    for (args, sentence) in [
        (&["--what"][..], "unknown argument --what; see --help"),
        (&["--out"], "--out needs a value"),
        (&["--namespace", "Not A Name"], "is not a namespace's name"),
        (&["--service", "stowplan"], "the chart's Service is called NAME-webhook"),
        (&["--days", "0"], "is not a number of days"),
    ] {
        let output = run(&mut make_certificates(args));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("certs/make.sh: ") && said.contains(sentence), "{said}");
    }
    assert!(stdout(&mut make_certificates(&["--help"])).contains("Usage: certs/make.sh"));
}
