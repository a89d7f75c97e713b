//! The image of stowplan, as `cargo testbed image` makes it: what is in it, and that its program finds
//! the API server where there is no other file. Real nodes run this image; these cases need none.

#![expect(clippy::print_stdout, reason = "one case reports to another process")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::Value;
use testbed::command::text;
use testbed::image::{Architecture, program};

use crate::stowplan_image::command;
use crate::suite::{self, Case};

const RESOLVES: &str = "image::the_program_finds_the_api_server_by_name_and_checks_its_certificate";

pub(crate) fn run() -> ExitCode {
    let cases = vec![
        Case::new("image::it_has_one_static_program_and_nothing_of_the_machine", |_| {
            Box::pin(one_static_program())
        }),
        Case::new(RESOLVES, |_| Box::pin(finds_the_api_server())),
    ];
    suite::run(cases, async || Ok(()), async |(), _| ())
}

/// Returns the files of a tar, by path, with their modes.
fn files(tar: impl std::io::Read) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        files.insert(path, (entry.header().mode().unwrap(), content));
    }
    files
}

/// Returns the configuration and the only layer of an archive.
fn unpack(archive: &Path) -> (Value, Vec<u8>) {
    let files = files(File::open(archive).unwrap());
    let json = |path: &str| serde_json::from_slice::<Value>(&files[path].1).unwrap();
    let docker = json("manifest.json");
    let layers = docker[0]["Layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1);
    let layer = files[layers[0].as_str().unwrap()].1.clone();
    (json(docker[0]["Config"].as_str().unwrap()), layer)
}

async fn one_static_program() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first.tar", "second.tar"].map(|name| dir.path().join(name));
    let said = [&first, &second].map(|archive| {
        let mut command = command(&["--output", archive.to_str().unwrap()]);
        text(command.env("SOURCE_DATE_EPOCH", "1700000000")).unwrap()
    });
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "the archives differ");
    let version = env!("CARGO_PKG_VERSION");
    let reference = format!("stowplan:{version}");
    assert_eq!(said[0].lines().next(), Some(&*reference));
    assert_eq!(said[0].lines().nth(1), said[1].lines().nth(1));
    assert!(said[0].contains("  digest   sha256:"), "{}", said[0]);

    let (config, layer) = unpack(&first);
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["architecture"], Architecture::of_this_machine().unwrap().to_string());
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/stowplan"]));
    assert_eq!(config["config"]["Cmd"], Value::Null);
    let labels = config["config"]["Labels"].as_object().unwrap();
    assert_eq!(labels["org.opencontainers.image.version"], version);
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");

    let packed = files(&*layer);
    assert_eq!(packed.keys().collect::<Vec<_>>(), ["stowplan"]);
    let (mode, bytes) = &packed["stowplan"];
    assert_eq!(*mode, 0o755);
    program::check_static(bytes).unwrap();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Not the home directory itself: stowplan names root's.
    let cargo = env::home_dir().unwrap().join(".cargo");
    let own = env::current_exe().unwrap();
    let folders = [workspace, &cargo, own.parent().unwrap()];
    assert_eq!(program::find_path(bytes, &folders), None);

    let root = root(dir.path(), bytes);
    let said = text(Command::new(root.join("stowplan")).arg("--version"))?;
    assert_eq!(said, format!("stowplan {version}\n"));
    Ok(())
}

/// Makes a root file system with the program, and with what a container runtime and the kubelet add.
fn root(dir: &Path, program: &[u8]) -> PathBuf {
    let root = dir.join("root");
    let account = root.join(ACCOUNT);
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::create_dir_all(&account).unwrap();
    fs::write(root.join("stowplan"), program).unwrap();
    fs::set_permissions(root.join("stowplan"), Permissions::from_mode(0o755)).unwrap();
    let resolver = "search stowplan-system.svc.cluster.local svc.cluster.local cluster.local\n\
                    nameserver 127.0.0.1\noptions ndots:5\n";
    fs::write(root.join("etc/resolv.conf"), resolver).unwrap();
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n127.0.0.1 api.of.hosts\n").unwrap();
    fs::write(root.join("etc/hostname"), "stowplan\n").unwrap();
    fs::write(account.join("token"), "the-token").unwrap();
    fs::write(account.join("namespace"), "stowplan-system").unwrap();
    root
}

const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// Names the root file system to the same case, started again in a network namespace.
const INSIDE: &str = "STOWPLAN_TEST_ROOT";

/// A name in `/etc/resolv.conf`'s domains, one of `/etc/hosts`, and an address.
const SERVERS: [&str; 3] = ["kubernetes.default.svc", "api.of.hosts", "127.0.0.1"];

/// In a network namespace of its own, so that port 53 and the loopback device are the test's.
async fn finds_the_api_server() -> Result<()> {
    if let Some(root) = env::var_os(INSIDE) {
        inside(Path::new(&root));
        return Ok(());
    }
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("image.tar");
    text(&mut command(&["--output", archive.to_str().unwrap()]))?;
    let (_, layer) = unpack(&archive);
    let root = root(dir.path(), &files(&*layer)["stowplan"].1);

    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    unshare
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg(RESOLVES)
        .env(INSIDE, &root);
    // With the name of the case, or nothing would have run inside.
    let said = text(&mut unshare)?;
    assert!(said.contains("1 passed") && said.contains("inside: 3 servers"), "{said}");
    Ok(())
}

fn inside(root: &Path) {
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    serve_names(Arc::clone(&names));
    let authority = write_certificates(root);
    fs::write(root.join(ACCOUNT).join("ca.crt"), authority).unwrap();
    for name in SERVERS {
        let host = format!("host: {name}:6443");
        run_until(root, name, &["authorization: bearer the-token", &host]);
    }
    let asked = names.lock().unwrap().clone();
    assert!(asked.contains("kubernetes.default.svc.cluster.local"), "{asked:?}");

    // With the certificate of another authority the server is refused before it gets the token.
    let other = write_certificates(&root.join("etc"));
    fs::write(root.join(ACCOUNT).join("ca.crt"), other).unwrap();
    let said = run_until(root, SERVERS[0], &["alert unknown ca"]);
    assert!(!said.contains("the-token"), "{said}");
    println!("inside: {} servers", SERVERS.len());
}

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a file has these texts in lower case, and returns it so.
fn wait_for(file: &Path, texts: &[&str], program: &Path) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let said = String::from_utf8_lossy(&fs::read(file).unwrap()).to_lowercase();
        if texts.iter().all(|text| said.contains(text)) {
            return said;
        }
        let log = || fs::read_to_string(program).unwrap_or_default();
        assert!(Instant::now() < end, "not {texts:?}: {said}\n{}", log());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a controller, as the chart runs it, alone in its root file system, until the API server at this
/// name has printed what is wanted. The server is openssl, which answers nothing, and prints what it has
/// decrypted and why a connection ended.
fn run_until(root: &Path, name: &str, wanted: &[&str]) -> String {
    let [server, program] = ["server", "program"].map(|name| root.with_file_name(name));
    let spawn = |command: &mut Command, file: &Path| {
        let output = File::create(file).unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        // The server ends with its input.
        Running(command.stdin(Stdio::piped()).spawn().unwrap())
    };
    let mut openssl = Command::new("openssl");
    openssl.args(["s_server", "-accept", "127.0.0.1:6443"]).current_dir(root);
    let _server = spawn(openssl.args(["-cert", "server.crt", "-key", "server.key"]), &server);
    wait_for(&server, &["accept\n"], &program);

    let mut chroot = Command::new("chroot");
    // A user namespace has no other user to change to.
    if fs::read_to_string("/proc/self/uid_map").unwrap().contains("4294967295") {
        chroot.arg("--userspec=65532:65532");
    }
    chroot
        .arg(root)
        .args(["/stowplan", "controller", "--namespace=stowplan-system"])
        .args(["--admin-listen=127.0.0.1:0", "--identity=stowplan-0"])
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap())
        .env("KUBERNETES_SERVICE_HOST", name)
        .env("KUBERNETES_SERVICE_PORT", "6443");
    let _program = spawn(&mut chroot, &program);
    wait_for(&server, wanted, &program)
}

/// Writes the certificate and the key of a server. Returns the certificate of their authority.
fn write_certificates(folder: &Path) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, folder.display().to_string());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(SERVERS.map(str::to_owned)).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    fs::write(folder.join("server.crt"), certificate.pem()).unwrap();
    fs::write(folder.join("server.key"), key.serialize_pem()).unwrap();
    authority.pem()
}

/// Answers DNS queries for the API server's address, and records every name that is asked for.
fn serve_names(asked: Arc<Mutex<BTreeSet<String>>>) {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut packet) {
            let query = &packet[..length];
            // The question: labels with their lengths, the root, the type and the class.
            let (mut at, mut labels) = (12, Vec::new());
            while query[at] > 0 {
                let end = at + 1 + usize::from(query[at]);
                labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
                at = end;
            }
            let name = labels.join(".");
            let is_address = query[at + 1..at + 3] == [0, 1];
            let is_known = name == "kubernetes.default.svc.cluster.local";
            asked.lock().unwrap().insert(name);
            let answers = u8::from(is_known && is_address);
            let mut answer = query[..2].to_vec();
            answer.extend([0x85, if is_known { 0x80 } else { 0x83 }]);
            answer.extend([0, 1, 0, answers, 0, 0, 0, 0]);
            answer.extend(&query[12..at + 5]);
            if answers > 0 {
                // The name of the question, type A, class IN, five seconds, four bytes.
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1]);
            }
            let _ = socket.send_to(&answer, client);
        }
    });
}
