//! Who keeps the webhook's certificate (`tls.mode`), and `certs/make.sh`: its certificates fit what
//! the chart renders.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::helm::{CA, Objects, Render, run, stdout};

const CERT_MANAGER: &str = r#"tls.mode="certManager""#;

/// The caBundle, the annotation for cert-manager, the Secret that the webhook reads, and whether the
/// controller keeps it.
fn kept_by(objects: &'static Objects) -> (bool, Option<&'static str>, &'static str, bool) {
    let bundle = &objects.webhooks()[0]["clientConfig"]["caBundle"];
    assert_eq!(bundle, &objects.validation()["clientConfig"]["caBundle"]);
    let configuration = objects.get("MutatingWebhookConfiguration", "stowplan");
    let annotation = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    let args = objects.args("webhook");
    let secret = args.iter().find_map(|it| it.strip_prefix("--tls-secret=")).expect("a Secret");
    let keeps = objects.args("controller").contains(&&*format!("--tls-secret={secret}"));
    (bundle.is_string(), annotation.as_str(), secret, keeps)
}

#[test]
fn each_mode_has_one_keeper_of_the_certificate() {
    let of_chart = Some("stowplan-system/stowplan-tls");
    let other = r#"tls.secretName="other""#;
    for (values, expected) in [
        (&[][..], (false, None, "stowplan-tls", true)),
        (&[r#"tls.mode="self""#], (false, None, "stowplan-tls", true)),
        // Not in this mode: its name is the release's.
        (&[other], (false, None, "stowplan-tls", true)),
        // Values that are older than tls.mode.
        (&[CA], (true, None, "stowplan-tls", false)),
        (&[CA, r#"tls.mode="provided""#], (true, None, "stowplan-tls", false)),
        (&[CA, other], (true, None, "other", false)),
        (&[r#"tls.certManager.inject="a/b""#], (false, Some("a/b"), "stowplan-tls", false)),
        (&[CERT_MANAGER], (false, of_chart, "stowplan-tls", false)),
        (&[CERT_MANAGER, other], (false, of_chart, "other", false)),
    ] {
        let objects = Render::bare().set_all(values).objects();
        assert_eq!(kept_by(objects), expected, "{values:?}");
    }
}

/// Otherwise each rendering would differ, and an upgrade would replace keys under running pods.
#[test]
fn no_rendering_has_certificate_data() {
    for values in [&[][..], &[CERT_MANAGER]] {
        let render = Render::bare().set_all(values);
        let text = render.text();
        assert_eq!(text, stdout(&mut render.command()));
        for part in ["BEGIN", "LS0tLS1", "caBundle:", "tls.crt:"] {
            assert!(!text.contains(part), "{part}");
        }
        assert!(!render.objects().has("Secret"));
    }
}

#[test]
fn cert_manager_issues_for_the_service_from_a_ca_of_the_chart_or_from_another_issuer() {
    let of = |values: &[&str]| Render::bare().set(CERT_MANAGER).set_all(values).objects();
    let chart = of(&[]);
    let host = &chart.webhooks()[0]["clientConfig"]["service"];
    let spec = &chart.get("Certificate", "stowplan-tls")["spec"];
    let text = |value: &'static Value| value.as_str().expect("text");
    let name = format!("{}.{}.svc", text(&host["name"]), text(&host["namespace"]));
    assert_eq!(spec["dnsNames"][0], name);
    assert_eq!(spec["secretName"], "stowplan-tls");
    assert_eq!(spec["issuerRef"], json!({"name": "stowplan-ca", "kind": "Issuer"}));
    let authority = &chart.get("Certificate", "stowplan-ca")["spec"];
    assert_eq!(authority["isCA"], true);
    let issuer = &chart.get("Issuer", "stowplan-ca")["spec"];
    assert_eq!(issuer["ca"]["secretName"], authority["secretName"]);
    let root = chart.get("Issuer", text(&authority["issuerRef"]["name"]));
    assert_eq!(root["spec"], json!({"selfSigned": {}}));

    let issuer = json!({"name": "corporate", "kind": "ClusterIssuer"});
    let other = of(&[&format!("tls.certManager.issuerRef={issuer}")]);
    assert_eq!(other.get("Certificate", "stowplan-tls")["spec"]["issuerRef"], issuer);
    assert!(!other.has("Issuer") && other.find("Certificate", "stowplan-ca").is_none());
    let mine = Render::bare().set(r#"tls.certManager.inject="a/b""#).objects();
    assert!(!mine.has("Certificate") && !mine.has("Issuer"));
}

/// The flags are those that the program has.
#[test]
fn the_controller_gets_names_and_lifetimes() {
    let lifetimes = r#"tls.self={"caLifetime": "100h", "leafLifetime": "10h", "overlap": "1m"}"#;
    let args = Render::bare().release("other").set(lifetimes).objects().args("controller");
    for flag in [
        "--tls-secret=other-stowplan-tls",
        "--ca-secret=other-stowplan-ca",
        "--service=other-stowplan-webhook",
        "--webhook-configuration=other-stowplan",
        "--ca-lifetime=100h",
        "--leaf-lifetime=10h",
        "--ca-overlap=1m",
    ] {
        assert!(args.contains(&flag), "{flag}: {args:?}");
    }
}

fn make_certificates(args: &[&str]) -> Command {
    let mut make = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/certs/make.sh"));
    make.args(args);
    make
}

#[test]
fn throw_away_certificates_fit_the_chart() {
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name).display().to_string();
    let names = ["--namespace", "here", "--service", "my-stowplan-webhook"];
    let said = stdout(make_certificates(&names).arg("--out").arg(out.path()));
    assert!(said.contains("helm upgrade --install my-stowplan "), "{said}");
    let files = fs::read_dir(out.path()).unwrap();
    let files: BTreeSet<_> = files.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["ca.crt", "tls.crt", "tls.key"].map(Into::into).into());

    // The name that the API server checks: <service>.<namespace>.svc of the rendered configuration.
    let openssl = |args: &[&str]| stdout(Command::new("openssl").args(args));
    let bundle = openssl(&["base64", "-A", "-in", &path("ca.crt")]);
    let render = Render::bare().release("my-stowplan").namespace("here");
    let objects = render.set(&format!("tls.caBundle={bundle:?}")).objects();
    let configuration = objects.get("MutatingWebhookConfiguration", "my-stowplan");
    let service = &configuration["webhooks"][0]["clientConfig"]["service"];
    let [name, namespace] = ["name", "namespace"].map(|key| service[key].as_str().unwrap());
    let host = format!("{name}.{namespace}.svc");
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
