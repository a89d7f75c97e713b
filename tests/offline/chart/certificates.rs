//! Who keeps the webhook's certificate (`tls.mode`), and `certs/make.sh`: its certificates fit what
//! the chart renders.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

use serde_json::{Value, json};

use super::helm::{CA, Objects, Render, run, stdout};

/// The caBundle, the annotation for cert-manager, the Secret that the webhook reads, and whether the
/// controller keeps it.
fn kept_by(objects: &Objects) -> (bool, Option<String>, String, bool) {
    let client = objects.webhook().client_config;
    assert_eq!(client.ca_bundle, objects.validation().client_config.ca_bundle);
    let configuration: Value = objects.get("MutatingWebhookConfiguration", "stowplan");
    let annotation = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    let arguments = |name: &str| {
        let (_, container) = objects.container(name).expect("a container");
        container.args.expect("arguments")
    };
    let (webhook, controller) = (arguments("webhook"), arguments("controller"));
    let secret = webhook.iter().find_map(|it| it.strip_prefix("--tls-secret=")).expect("a Secret");
    let keeps = controller.contains(&format!("--tls-secret={secret}"));
    let annotation = annotation.as_str().map(str::to_owned);
    (client.ca_bundle.is_some(), annotation, secret.to_owned(), keeps)
}

#[test]
fn each_mode_has_one_keeper_of_the_certificate() {
    let ca = format!("tls.caBundle={CA:?}");
    let of_chart = Some("stowplan-system/stowplan-tls".to_owned());
    let own = "stowplan-tls".to_owned();
    let provided = (true, None, own.clone(), false);
    for (values, expected) in [
        (&[][..], (false, None, own.clone(), true)),
        (&[r#"tls.mode="self""#], (false, None, own.clone(), true)),
        // Not in this mode: its name is the release's.
        (&[r#"tls.secretName="other""#], (false, None, own.clone(), true)),
        // Values that are older than tls.mode.
        (&[&*ca], provided.clone()),
        (&[&*ca, r#"tls.mode="provided""#], provided),
        (&[&*ca, r#"tls.secretName="other""#], (true, None, "other".to_owned(), false)),
        (&[r#"tls.certManager.inject="a/b""#], (false, Some("a/b".to_owned()), own.clone(), false)),
        (&[r#"tls.mode="certManager""#], (false, of_chart.clone(), own.clone(), false)),
        (
            &[r#"tls.mode="certManager""#, r#"tls.secretName="other""#],
            (false, of_chart, "other".to_owned(), false),
        ),
    ] {
        let objects = Render::bare().set_all(values).objects();
        assert_eq!(kept_by(&objects), expected, "{values:?}");
    }
}

/// Otherwise each rendering would differ, and an upgrade would replace keys under running pods.
#[test]
fn no_rendering_has_certificate_data() {
    for values in [&[][..], &[r#"tls.mode="certManager""#]] {
        let render = Render::bare().set_all(values);
        let text = render.text();
        assert_eq!(text, render.text());
        for part in ["BEGIN", "LS0tLS1", "caBundle:", "tls.crt:"] {
            assert!(!text.contains(part), "{part}");
        }
        assert!(!Objects::parse(&text).kinds().contains("Secret"));
    }
}

#[test]
fn cert_manager_issues_for_the_service_from_a_ca_of_the_chart_or_from_another_issuer() {
    let mode = r#"tls.mode="certManager""#;
    let of = |values: &[&str]| Render::bare().set(mode).set_all(values).objects();
    let certificate = |objects: &Objects| objects.get::<Value>("Certificate", "stowplan-tls");
    let chart = of(&[]);
    let host = chart.webhook().client_config.service.expect("a Service");
    let spec = certificate(&chart)["spec"].clone();
    assert_eq!(spec["dnsNames"][0], format!("{}.{}.svc", host.name, host.namespace));
    assert_eq!(spec["secretName"], "stowplan-tls");
    assert_eq!(spec["issuerRef"], json!({"name": "stowplan-ca", "kind": "Issuer"}));
    let authority: Value = chart.get("Certificate", "stowplan-ca");
    assert_eq!(authority["spec"]["isCA"], true);
    let issuer: Value = chart.get("Issuer", "stowplan-ca");
    assert_eq!(issuer["spec"]["ca"]["secretName"], authority["spec"]["secretName"]);
    let root = authority["spec"]["issuerRef"]["name"].as_str().expect("a name");
    let root: Value = chart.get("Issuer", root);
    assert_eq!(root["spec"], json!({"selfSigned": {}}));

    let issuer = json!({"name": "corporate", "kind": "ClusterIssuer"});
    let other = of(&[&format!("tls.certManager.issuerRef={issuer}")]);
    assert_eq!(certificate(&other)["spec"]["issuerRef"], issuer);
    assert!(!other.kinds().contains("Issuer"));
    assert!(other.find::<Value>("Certificate", "stowplan-ca").is_none());
    let mine = Render::bare().set(r#"tls.certManager.inject="a/b""#).objects();
    assert!(!mine.kinds().contains("Certificate") && !mine.kinds().contains("Issuer"));
}

/// The flags are those that the program has.
#[test]
fn the_controller_gets_names_and_lifetimes() {
    let objects = Render::bare()
        .release("other")
        .set_all(&[r#"tls.self={"caLifetime": "100h", "leafLifetime": "10h", "overlap": "1m"}"#])
        .objects();
    let (_, container) = objects.container("controller").expect("a controller");
    let arguments = container.args.expect("arguments");
    for flag in [
        "--tls-secret=other-stowplan-tls",
        "--ca-secret=other-stowplan-ca",
        "--service=other-stowplan-webhook",
        "--webhook-configuration=other-stowplan",
        "--ca-lifetime=100h",
        "--leaf-lifetime=10h",
        "--ca-overlap=1m",
    ] {
        assert!(arguments.contains(&flag.to_owned()), "{flag}: {arguments:?}");
    }
}

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
