//! `certs/make.sh`: its certificates fit what the chart renders.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

use super::helm::{Render, run, stdout};

fn make_certificates(args: &[&str]) -> Command {
    let mut make = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/certs/make.sh"));
    make.args(args);
    make
}

#[test]
fn throw_away_certificates_fit_the_chart() {
    let out = tempfile::tempdir().expect("a folder");
    let path = |name: &str| out.path().join(name).display().to_string();
    let folder = out.path().display().to_string();
    let said = stdout(&mut make_certificates(&[
        "--namespace",
        "here",
        "--service",
        "my-stowplan-webhook",
        "--out",
        &folder,
    ]));
    assert!(said.contains("helm upgrade --install my-stowplan "), "{said}");

    let files: BTreeSet<_> = fs::read_dir(out.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    assert_eq!(files, ["ca.crt", "tls.crt", "tls.key"].map(str::to_owned).into());

    // The name that the API server checks: <service>.<namespace>.svc of the rendered configuration.
    let openssl = |args: &[&str]| stdout(Command::new("openssl").args(args));
    let bundle = openssl(&["base64", "-A", "-in", &path("ca.crt")]);
    let render = Render::bare().release("my-stowplan").namespace("here");
    let objects = render.set(&format!("tls.caBundle={bundle:?}")).objects();
    let configuration: MutatingWebhookConfiguration =
        objects.get("MutatingWebhookConfiguration", "my-stowplan");
    let webhooks = configuration.webhooks.expect("webhooks");
    let service = webhooks[0].client_config.service.as_ref().expect("a Service");
    let host = format!("{}.{}.svc", service.name, service.namespace);
    let verified = openssl(&[
        "verify",
        "-CAfile",
        &path("ca.crt"),
        "-purpose",
        "sslserver",
        "-verify_hostname",
        &host,
        &path("tls.crt"),
    ]);
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
