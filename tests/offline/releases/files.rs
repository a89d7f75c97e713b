//! `.ci/release` in a folder of its own, with the files that it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use testbed::image::{Image, Layer};
use testbed::tools::{Tools, to_stderr};

use crate::chart::helm::stdout;
use crate::documents::ROOT;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const REGISTRY: &str = "registry.example:5000/team";

struct Checkout(TempDir);

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        let sources = [
            ".ci/krew.yaml",
            ".ci/release",
            "CHANGELOG.md",
            "Cargo.toml",
            "Dockerfile",
            "LICENSE",
            "README.md",
            "charts/stowplan",
        ];
        let mut copy = Command::new("cp");
        copy.args(["-R", "--parents"]).args(sources).arg(checkout.0.path());
        stdout(copy.current_dir(ROOT));
        fs::create_dir(checkout.path("programs")).unwrap();
        checkout.edit("CHANGELOG.md", "## Unreleased", &format!("## {VERSION} - 2026-01-31"));
        checkout
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    #[track_caller]
    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} has no {from:?}");
        fs::write(self.path(path), text.replacen(from, to, 1)).unwrap();
    }

    /// A program that comes before others of its name, and writes its arguments to `NAME.said`.
    fn program(&self, name: &str) {
        let path = self.path("programs").join(name);
        let said = self.path(&format!("{name}.said"));
        fs::write(&path, format!("#!/bin/sh\necho \"$@\" >>{}\n", said.display())).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path(".ci/release"));
        let path = std::env::var("PATH").unwrap();
        command
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.path("programs").display()))
            .env("REGISTRY", REGISTRY);
        for variable in ["DIST", "GITHUB_REPOSITORY", "GITHUB_SERVER_URL", "SOURCE_DATE_EPOCH"] {
            command.env_remove(variable);
        }
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        stdout(&mut self.command(arguments))
    }

    fn dist(&self) -> PathBuf {
        self.path("target/dist")
    }
}

/// Runs a command that has to fail with this message.
#[track_caller]
fn is_refused(command: &mut Command, message: &str) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(!status.success(), "{command:?}: {}", String::from_utf8_lossy(&stdout));
    let said = String::from_utf8(stderr).unwrap();
    assert!(said.contains(message), "{said}");
}

/// The step `files` for an image with this digest.
fn files(checkout: &Checkout) -> Command {
    let mut command = checkout.command(&["files", &digest()]);
    command.env("HELM", Tools::ensure(&to_stderr).unwrap().program("helm"));
    command
}

fn digest() -> String {
    format!("sha256:{}", "5".repeat(64))
}

fn write_list_of_dependencies(checkout: &Checkout) {
    fs::create_dir_all(checkout.dist()).unwrap();
    fs::write(checkout.dist().join(format!("stowplan-{VERSION}.cdx.json")), "{}").unwrap();
}

#[test]
fn a_tag_a_place_or_a_registry_that_does_not_fit_is_refused() {
    let checkout = Checkout::new();
    let tag = format!("v{VERSION}");
    let check = || checkout.command(&["check", &tag]);
    assert_eq!(stdout(&mut check()), format!("{VERSION}\n"));

    let other = format!("the tag is v9.9.9 and Cargo.toml has {VERSION}");
    is_refused(&mut checkout.command(&["check", "v9.9.9"]), &other);
    is_refused(check().env_remove("REGISTRY"), "REGISTRY is not set: set it to where");
    // The workflow's variable is empty if the repository has none.
    is_refused(check().env("REGISTRY", ""), "REGISTRY is not set");
    for registry in ["https://registry.example", "Registry.example/Team", "a b", "a/", "a;b"] {
        let message = format!("REGISTRY is \"{registry}\": write a host");
        is_refused(check().env("REGISTRY", registry), &message);
    }
    let place = |name: &str| {
        let mut command = check();
        command.env("GITHUB_SERVER_URL", "https://github.com").env("GITHUB_REPOSITORY", name);
        command
    };
    assert_eq!(stdout(&mut place("stowplan/stowplan")), format!("{VERSION}\n"));
    let fork = "this is https://github.com/somebody/fork and Cargo.toml";
    is_refused(&mut place("somebody/fork"), fork);

    let change = |path: &str, from: &str, to: &str, message: &str| {
        checkout.edit(path, from, to);
        is_refused(&mut check(), message);
        checkout.edit(path, to, from);
    };
    for field in ["version", "appVersion"] {
        let [from, to] = [VERSION, "9.9.9"].map(|version| format!("\n{field}: {version}"));
        change("charts/stowplan/Chart.yaml", &from, &to, &format!("the chart's {field} is 9.9.9"));
    }
    let heading = format!("## {VERSION} - 2026-01-31");
    change("CHANGELOG.md", &heading, "## Unreleased", &format!("no heading \"## {VERSION}\""));
}

#[test]
fn a_new_version_is_written_everywhere() {
    let checkout = Checkout::new();
    checkout.program("cargo");
    let new = "1.22.333-rc.4";
    checkout.run(&["set-version", new]);
    assert_eq!(checkout.read("cargo.said"), "update --workspace --offline --quiet\n");
    checkout.edit("CHANGELOG.md", &format!("## {VERSION}"), &format!("## {new}"));
    assert_eq!(checkout.run(&["check", &format!("v{new}")]), format!("{new}\n"));
    for (path, line) in [
        ("Cargo.toml", format!("version = \"{new}\"")),
        ("charts/stowplan/Chart.yaml", format!("version: {new}")),
        ("charts/stowplan/Chart.yaml", format!("appVersion: {new}")),
        ("Dockerfile", format!("      org.opencontainers.image.version=\"{new}\" \\")),
    ] {
        let text = checkout.read(path);
        assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{path}: {line}");
    }
    // And nothing else.
    for path in ["Cargo.toml", "Dockerfile", "charts/stowplan/Chart.yaml"] {
        let before = fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
        assert_eq!(checkout.read(path).replace(new, VERSION), before, "{path}");
    }
    for wrong in ["1.2", "v1.2.3", "1.2.3 ", ""] {
        let message = "is no version: write MAJOR.MINOR.PATCH";
        is_refused(&mut checkout.command(&["set-version", wrong]), message);
    }
}

#[test]
fn an_archive_of_the_command_line_is_the_same_each_time() {
    let checkout = Checkout::new();
    checkout.program("stowplan");
    let pack = || {
        let said = checkout.run(&["pack", "programs/stowplan", "linux-amd64"]);
        let archive = checkout.path(said.trim());
        (fs::read(&archive).unwrap(), archive)
    };
    let (first, archive) = pack();
    assert_eq!(pack().0, first);
    assert!(archive.ends_with(format!("kubectl-stowplan-{VERSION}-linux-amd64.tar.gz")));
    let list = stdout(Command::new("tar").arg("-tzvf").arg(&archive).env("TZ", "UTC"));
    // Neither the time nor the user of this test.
    assert!(
        list.lines().all(|line| line.contains(" 0/0 ") && line.contains(" 1970-01-01 ")),
        "{list}"
    );
    let entries: Vec<(&str, &str)> =
        list.lines().map(|line| (&line[..10], line.rsplit(' ').next().unwrap())).collect();
    // Plain files only: krew unpacks no links.
    let wanted = [
        ("-rw-r--r--", "LICENSE"),
        ("-rw-r--r--", "README.md"),
        ("-rwxr-xr-x", "kubectl-stowplan"),
    ];
    assert_eq!(entries, wanted);
}

/// Images as those of two architectures, and their digests.
fn write_images(checkout: &Checkout) -> BTreeSet<String> {
    fs::create_dir_all(checkout.dist()).unwrap();
    let write = |architecture: &str| {
        let image = Image {
            name: format!("{REGISTRY}/stowplan"),
            tag: VERSION.to_owned(),
            layers: vec![Layer::Program("stowplan", architecture.into())],
            ..Image::default()
        };
        let name = format!("stowplan-image-{VERSION}-linux-{architecture}.tar");
        image.write(&checkout.dist().join(name)).unwrap()
    };
    ["amd64", "arm64"].iter().map(|architecture| write(architecture)).collect()
}

#[test]
fn the_images_of_all_architectures_are_joined_with_their_digests() {
    let checkout = Checkout::new();
    is_refused(&mut checkout.command(&["layout"]), "there is no image in target/dist");

    let images = write_images(&checkout);
    let digest = checkout.run(&["layout"]).trim().to_owned();
    assert_eq!(checkout.run(&["layout"]).trim(), digest);
    let folder = checkout.dist().join("layout");
    let json = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    assert_eq!(json(&folder.join("oci-layout"))["imageLayoutVersion"], "1.0.0");

    // Each blob has the size and the digest by which the one above names it.
    let blob = |descriptor: &Value| -> Value {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = fs::read(folder.join("blobs/sha256").join(digest)).unwrap();
        assert_eq!(descriptor["size"], bytes.len());
        let found: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(digest, found);
        serde_json::from_slice(&bytes).unwrap_or_default()
    };
    let top = &json(&folder.join("index.json"))["manifests"];
    assert_eq!(top.as_array().unwrap().len(), 1);
    assert_eq!(top[0]["digest"], *digest);
    assert_eq!(top[0]["annotations"]["org.opencontainers.image.ref.name"], VERSION);
    let index = blob(&top[0]);
    assert_eq!(index["mediaType"], top[0]["mediaType"]);
    let mut found = BTreeSet::new();
    for image in index["manifests"].as_array().unwrap() {
        assert_eq!(image["platform"]["os"], "linux");
        assert_eq!(image["annotations"], Value::Null);
        found.insert(image["digest"].as_str().unwrap().to_owned());
        let manifest = blob(image);
        blob(&manifest["config"]);
        blob(&manifest["layers"][0]);
    }
    assert_eq!(found, images);
}

#[test]
fn the_files_of_a_release_name_its_image_and_have_checksums() {
    let checkout = Checkout::new();
    checkout.program("stowplan");
    let mut no_digest = checkout.command(&["files", "0.1.0"]);
    is_refused(no_digest.env("HELM", "none"), "\"0.1.0\" is no digest");
    let no_list = "there is no list of dependencies in target/dist";
    is_refused(&mut files(&checkout), no_list);
    write_images(&checkout);
    write_list_of_dependencies(&checkout);
    is_refused(&mut files(&checkout), "there is no program in target/dist");
    for platform in ["linux-amd64", "linux-arm64"] {
        checkout.run(&["pack", "programs/stowplan", platform]);
    }
    stdout(&mut files(&checkout));

    let dist = checkout.dist();
    let sums = fs::read_to_string(dist.join("SHA256SUMS")).unwrap();
    let sums: BTreeMap<&str, &str> =
        sums.lines().filter_map(|line| line.split_once("  ")).map(|(s, n)| (n, s)).collect();
    let mut wanted = [
        "kubectl-stowplan-V-linux-amd64.tar.gz",
        "kubectl-stowplan-V-linux-arm64.tar.gz",
        "kubectl-stowplan-V.krew.yaml",
        "stowplan-V.cdx.json",
        "stowplan-V.tgz",
        "stowplan-V.yaml",
        "stowplan-image-V-linux-amd64.tar",
        "stowplan-image-V-linux-arm64.tar",
    ]
    .map(|name| name.replace('V', VERSION));
    wanted.sort();
    assert_eq!(sums.keys().collect::<Vec<_>>(), wanted.iter().collect::<Vec<_>>());
    stdout(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&dist));
    let mut on_disk = fs::read_dir(&dist).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(on_disk.all(|name| name == "SHA256SUMS" || sums.contains_key(name.to_str().unwrap())));

    let plain = fs::read_to_string(dist.join(&wanted[5])).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&plain).unwrap();
    assert_eq!(objects[0]["kind"], "Namespace");
    let images: BTreeSet<&str> =
        plain.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
    let image = format!("\"{REGISTRY}/stowplan@{}\"", digest());
    assert_eq!(images, BTreeSet::from([&*image]));
    for kind in ["Deployment", "MutatingWebhookConfiguration", "CustomResourceDefinition"] {
        assert!(objects.iter().any(|object| object["kind"] == kind), "{kind}");
    }
    // Helm's hooks would run as ordinary objects.
    assert!(!plain.contains("helm.sh/hook"));

    let tools = Tools::ensure(&to_stderr).unwrap();
    let chart = dist.join(&wanted[4]);
    let values = stdout(Command::new(tools.program("helm")).args(["show", "values"]).arg(chart));
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    assert_eq!(values["image"]["repository"], format!("{REGISTRY}/stowplan"));
    assert_eq!(values["image"]["digest"], "");

    let krew = fs::read_to_string(dist.join(&wanted[2])).unwrap();
    assert!(!krew.contains('@'), "{krew}");
    let krew: Value = serde_saphyr::from_str(&krew).unwrap();
    assert_eq!(krew["spec"]["version"], format!("v{VERSION}"));
    assert!(krew["spec"]["shortDescription"].as_str().unwrap().len() <= 50);
    let platforms = krew["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for (platform, architecture) in platforms.iter().zip(["amd64", "arm64"]) {
        let labels = &platform["selector"]["matchLabels"];
        assert_eq!((&labels["os"], &labels["arch"]), (&"linux".into(), &architecture.into()));
        let archive = platform["uri"].as_str().unwrap().rsplit('/').next().unwrap();
        assert_eq!(platform["sha256"], sums[archive]);
        assert!(archive.ends_with(&format!("linux-{architecture}.tar.gz")), "{archive}");
        assert_eq!(platform["bin"], "kubectl-stowplan");
    }
}

#[test]
fn a_renamed_value_of_the_chart_stops_the_release() {
    let checkout = Checkout::new();
    write_list_of_dependencies(&checkout);
    let helpers = "charts/stowplan/templates/_helpers.tpl";
    checkout.edit(helpers, "Values.image.repository", "Values.image.other");
    is_refused(&mut files(&checkout), "the rendered chart does not name");
}
