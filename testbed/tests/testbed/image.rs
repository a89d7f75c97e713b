//! Archives of images: their layout is what container engines read, and the same image gives the
//! same bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::image::{Architecture, Content, Entry, Image, Layer};

/// This machine's architecture, as images name it.
fn architecture() -> String {
    Architecture::of_this_machine().unwrap().to_string()
}

/// The files of an archive, by path.
fn files(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(File::open(archive).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mtime().unwrap(), 0);
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        assert!(files.insert(path.clone(), content).is_none(), "{path} twice");
    }
    files
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The blob that a descriptor refers to; its size and its digest are true.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let named = descriptor["digest"].as_str().unwrap();
    let path = format!("blobs/{}", named.replace(':', "/"));
    let content = files.get(&path).unwrap_or_else(|| panic!("no {path}"));
    assert_eq!(digest(content), named);
    assert_eq!(descriptor["size"], content.len());
    content
}

/// An entry of a layer: type, path, mode, owner, time, and the content or the target.
type Packed = (char, String, u32, (u64, u64), u64, String);

fn packed(layer: &[u8]) -> Vec<Packed> {
    tar::Archive::new(layer)
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let target = entry.link_name().unwrap().map(|target| target.display().to_string());
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            (
                char::from(header.entry_type().as_byte()),
                path,
                header.mode().unwrap(),
                (header.uid().unwrap(), header.gid().unwrap()),
                header.mtime().unwrap(),
                target.unwrap_or(content),
            )
        })
        .collect()
}

/// A root file system that somebody else packed.
fn foreign(dir: &Path) -> PathBuf {
    let path = dir.join("root.tar");
    let mut tar = tar::Builder::new(File::create(&path).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o644);
    tar.append_data(&mut header, "etc/motd", &b"hi\n"[..]).unwrap();
    tar.into_inner().unwrap();
    path
}

fn image(dir: &Path) -> Image {
    fs::write(dir.join("program"), "#!").unwrap();
    let link =
        Entry { mode: 0o777, owner: (0, 0), content: Content::Link("../bin/program".to_owned()) };
    let home = Entry { mode: 0o700, owner: (1000, 1001), content: Content::Directory };
    let long = format!("bin/{}", "long".repeat(40));
    let entries = [
        ("bin/program".to_owned(), Entry::program(dir.join("program"))),
        ("bin".to_owned(), Entry::directory()),
        ("home".to_owned(), home),
        ("bin-2".to_owned(), link),
        (long, Entry::text("x")),
    ];
    Image {
        name: "stow.test/mpi".to_owned(),
        tag: "1".to_owned(),
        layers: vec![Layer::Tar(foreign(dir)), Layer::Entries(entries.into())],
        entrypoint: vec!["/bin/program".to_owned()],
        cmd: vec!["--help".to_owned()],
        user: "1000:1001".to_owned(),
        env: [("B".to_owned(), "2".to_owned()), ("A".to_owned(), "1=1".to_owned())].into(),
        working_dir: "/home".to_owned(),
        labels: [("org.opencontainers.image.version".to_owned(), "1".to_owned())].into(),
        created: 1_700_000_000,
        architecture: None,
    }
}

/// Writes an image: its digest, and the files of the archive.
fn write(image: &Image, dir: &Path) -> (String, BTreeMap<String, Vec<u8>>) {
    let archive = dir.join("image.tar");
    let digest = image.write(&archive).unwrap().to_string();
    (digest, files(&archive))
}

#[test]
fn an_image_for_another_architecture_says_so_in_both_places() {
    let dir = tempfile::tempdir().unwrap();
    for architecture in [Architecture::Amd64, Architecture::Arm64] {
        let image = Image { architecture: Some(architecture), ..image(dir.path()) };
        let (_, files) = write(&image, dir.path());
        let descriptor = &json(&files["index.json"])["manifests"][0];
        assert_eq!(descriptor["platform"]["architecture"], architecture.to_string());
        let config = json(blob(&files, &json(blob(&files, descriptor))["config"]));
        assert_eq!(config["architecture"], architecture.to_string());
    }
}

#[test]
fn every_digest_is_true_and_both_indexes_name_the_same_blobs() {
    let dir = tempfile::tempdir().unwrap();
    let (written, files) = write(&image(dir.path()), dir.path());

    assert_eq!(json(&files["oci-layout"]), json!({ "imageLayoutVersion": "1.0.0" }));
    let index = json(&files["index.json"]);
    let [descriptor] = &index["manifests"].as_array().unwrap()[..] else { panic!("{index}") };
    assert_eq!(descriptor["digest"], written);
    assert_eq!(descriptor["platform"], json!({ "architecture": architecture(), "os": "linux" }));
    assert_eq!(
        descriptor["annotations"],
        json!({
            "io.containerd.image.name": "stow.test/mpi:1",
            "org.opencontainers.image.ref.name": "1",
        })
    );
    let manifest = json(blob(&files, descriptor));
    assert_eq!(manifest["mediaType"], descriptor["mediaType"]);
    let config = json(blob(&files, &manifest["config"]));
    let layers: Vec<_> = manifest["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|descriptor| {
            assert_eq!(descriptor["mediaType"], "application/vnd.oci.image.layer.v1.tar");
            blob(&files, descriptor)
        })
        .collect();

    let contents: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
    assert_eq!(config["rootfs"], json!({ "type": "layers", "diff_ids": contents }));
    assert_eq!(config["history"].as_array().unwrap().len(), layers.len());
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["architecture"], architecture());
    assert_eq!(
        config["config"],
        json!({
            "User": "1000:1001",
            "Env": ["A=1=1", "B=2"],
            "Entrypoint": ["/bin/program"],
            "Cmd": ["--help"],
            "WorkingDir": "/home",
            "Labels": { "org.opencontainers.image.version": "1" },
        })
    );

    assert_eq!(layers[0], fs::read(dir.path().join("root.tar")).unwrap());
    let time = 1_700_000_000;
    let text = |text: &str| text.to_owned();
    assert_eq!(
        packed(layers[1]),
        [
            ('5', text("bin/"), 0o755, (0, 0), time, String::new()),
            ('2', text("bin-2"), 0o777, (0, 0), time, text("../bin/program")),
            ('0', format!("bin/{}", "long".repeat(40)), 0o644, (0, 0), time, text("x")),
            ('0', text("bin/program"), 0o755, (0, 0), time, text("#!")),
            ('5', text("home/"), 0o700, (1000, 1001), time, String::new()),
        ]
    );

    let docker = json(&files["manifest.json"]);
    let path = |digest: &Value| {
        let (algorithm, hex) = digest.as_str().unwrap().split_once(':').unwrap();
        format!("blobs/{algorithm}/{hex}")
    };
    let paths: Vec<_> =
        manifest["layers"].as_array().unwrap().iter().map(|layer| path(&layer["digest"])).collect();
    assert_eq!(
        docker,
        json!([{
            "Config": path(&manifest["config"]["digest"]),
            "RepoTags": ["stow.test/mpi:1"],
            "Layers": paths,
        }])
    );
    // Two layers, the configuration, the manifest, and nothing else.
    assert_eq!(files.len(), 4 + 3, "{:?}", files.keys());
    assert_eq!(
        fs::metadata(dir.path().join("image.tar")).unwrap().permissions().mode() & 0o777,
        0o644
    );
}

#[test]
fn the_same_image_gives_the_same_bytes() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [(digest, archive), again] = [&first, &second].map(|dir| {
        let (digest, _) = write(&image(dir.path()), dir.path());
        (digest, fs::read(dir.path().join("image.tar")).unwrap())
    });
    assert!((&digest, &archive) == (&again.0, &again.1));

    // And another one gives another digest.
    let changed = Image { user: "0".to_owned(), ..image(first.path()) };
    assert_ne!(write(&changed, first.path()).0, digest);
}

#[test]
fn equal_layers_are_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut image = image(dir.path());
    image.layers = vec![image.layers[0].clone(), image.layers[0].clone()];
    let (_, files) = write(&image, dir.path());
    let docker = json(&files["manifest.json"]);
    assert_eq!(docker[0]["Layers"][0], docker[0]["Layers"][1]);
    assert_eq!(files.len(), 3 + 3, "{:?}", files.keys());
}

#[test]
fn an_image_that_cannot_be_written_leaves_the_earlier_archive() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("image.tar");
    fs::write(&archive, "earlier").unwrap();
    let good = image(dir.path());
    let compressed = dir.path().join("root.tar.gz");
    fs::write(&compressed, [0x1f, 0x8b, 8, 0]).unwrap();
    let entry = |path: &str| vec![Layer::Entries([(path.to_owned(), Entry::text("x"))].into())];
    let cases = [
        (Image { name: "Stow".to_owned(), ..good.clone() }, "not the name of an image"),
        (Image { tag: String::new(), ..good.clone() }, "not a tag"),
        (Image { layers: Vec::new(), ..good.clone() }, "at least one layer"),
        (Image { layers: vec![Layer::Tar(dir.path().join("none"))], ..good.clone() }, "none"),
        (Image { layers: vec![Layer::Tar(dir.path().into())], ..good.clone() }, "cannot read"),
        (Image { layers: vec![Layer::Tar(compressed)], ..good.clone() }, "decompress it first"),
        (Image { layers: entry("/bin/x"), ..good.clone() }, "not a path in an image"),
        (Image { layers: entry("a/../b"), ..good.clone() }, "not a path in an image"),
        (Image { layers: entry(""), ..good.clone() }, "not a path in an image"),
        (Image { created: u64::MAX, ..good.clone() }, "not a time"),
    ];
    for (image, wanted) in cases {
        let error = format!("{:#}", image.write(&archive).unwrap_err());
        assert!(error.contains(wanted), "{error}");
        assert!(error.contains("cannot write"), "{error}");
        assert_eq!(fs::read(&archive).unwrap(), b"earlier");
    }
    let error = good.write(&dir.path().join("no/such/folder.tar")).unwrap_err();
    assert!(format!("{error:#}").contains("No such file"), "{error:#}");
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 4, "the archive, the program, the foreign tar and the compressed one");
}
