//! Archives of images: their layout is what container engines read, and the same image gives the
//! same bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::image::{Architecture, Image, Layer};

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

/// Where an archive has the blob of a descriptor.
fn path(descriptor: &Value) -> String {
    format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"))
}

/// The blob that a descriptor refers to; its size and its digest are true.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let named = descriptor["digest"].as_str().unwrap();
    let path = path(descriptor);
    let content = files.get(&path).unwrap_or_else(|| panic!("no {path}"));
    assert_eq!(digest(content), named);
    assert_eq!(descriptor["size"], content.len());
    content
}

/// An entry of a layer: path, mode, owner, time and content.
type Packed = (String, u32, (u64, u64), u64, String);

fn packed(layer: &[u8]) -> Vec<Packed> {
    tar::Archive::new(layer)
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            let path = entry.path().unwrap().display().to_string();
            let owner = (header.uid().unwrap(), header.gid().unwrap());
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            (path, header.mode().unwrap(), owner, header.mtime().unwrap(), content)
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
    Image {
        name: "stow.test/mpi".to_owned(),
        tag: "1".to_owned(),
        layers: vec![Layer::Tar(foreign(dir)), Layer::Program("program", b"#!".to_vec())],
        entrypoint: vec!["/program".to_owned()],
        cmd: vec!["--help".to_owned()],
        user: "1000:1001".to_owned(),
        env: [("B".to_owned(), "2".to_owned()), ("A".to_owned(), "1=1".to_owned())].into(),
        labels: [("org.opencontainers.image.version".to_owned(), "1".to_owned())].into(),
        created: 1_700_000_000,
        architecture: None,
    }
}

/// Writes an image: its digest, and the files of the archive.
fn write(image: &Image, dir: &Path) -> (String, BTreeMap<String, Vec<u8>>) {
    let archive = dir.join("image.tar");
    let digest = image.write(&archive).unwrap();
    (digest, files(&archive))
}

#[test]
fn every_digest_is_true_and_both_indexes_name_the_same_blobs() {
    let own = Architecture::of_this_machine().unwrap();
    for architecture in [None, Some(Architecture::Amd64), Some(Architecture::Arm64)] {
        let named = architecture.unwrap_or(own).to_string();
        let dir = tempfile::tempdir().unwrap();
        let image = Image { architecture, ..image(dir.path()) };
        check_archive(&image, &named, dir.path());
    }
}

fn check_archive(image: &Image, architecture: &str, dir: &Path) {
    let (written, files) = write(image, dir);
    assert_eq!(json(&files["oci-layout"]), json!({ "imageLayoutVersion": "1.0.0" }));
    let index = json(&files["index.json"]);
    let [descriptor] = &index["manifests"].as_array().unwrap()[..] else { panic!("{index}") };
    assert_eq!(descriptor["digest"], written);
    assert_eq!(descriptor["platform"], json!({ "architecture": architecture, "os": "linux" }));
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
    let descriptors = manifest["layers"].as_array().unwrap();
    for descriptor in descriptors {
        assert_eq!(descriptor["mediaType"], "application/vnd.oci.image.layer.v1.tar");
    }
    let layers: Vec<_> = descriptors.iter().map(|layer| blob(&files, layer)).collect();

    let contents: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
    assert_eq!(config["rootfs"], json!({ "type": "layers", "diff_ids": contents }));
    assert_eq!(config["history"].as_array().unwrap().len(), layers.len());
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["architecture"], architecture);
    assert_eq!(
        config["config"],
        json!({
            "User": "1000:1001",
            "Env": ["A=1=1", "B=2"],
            "Entrypoint": ["/program"],
            "Cmd": ["--help"],
            "Labels": { "org.opencontainers.image.version": "1" },
        })
    );

    assert_eq!(layers[0], fs::read(dir.join("root.tar")).unwrap());
    let program = ("program".to_owned(), 0o755, (0, 0), 1_700_000_000, "#!".to_owned());
    assert_eq!(packed(layers[1]), [program]);

    assert_eq!(
        json(&files["manifest.json"]),
        json!([{
            "Config": path(&manifest["config"]),
            "RepoTags": ["stow.test/mpi:1"],
            "Layers": descriptors.iter().map(path).collect::<Vec<_>>(),
        }])
    );
    // Two layers, the configuration, the manifest, and nothing else.
    assert_eq!(files.len(), 4 + 3, "{:?}", files.keys());
    let archive = fs::metadata(dir.join("image.tar")).unwrap();
    assert_eq!(archive.permissions().mode() & 0o777, 0o644);
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
fn an_image_that_cannot_be_written_leaves_the_earlier_archive() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("image.tar");
    fs::write(&archive, "earlier").unwrap();
    let good = image(dir.path());
    let compressed = dir.path().join("root.tar.gz");
    fs::write(&compressed, [0x1f, 0x8b, 8, 0]).unwrap();
    let cases = [
        (Image { name: "Stow".to_owned(), ..good.clone() }, "not the name of an image"),
        (Image { tag: String::new(), ..good.clone() }, "not a tag"),
        (Image { layers: Vec::new(), ..good.clone() }, "at least one layer"),
        (Image { layers: vec![Layer::Tar(dir.path().join("none"))], ..good.clone() }, "none"),
        (Image { layers: vec![Layer::Tar(dir.path().into())], ..good.clone() }, "cannot read"),
        (Image { layers: vec![Layer::Tar(compressed)], ..good.clone() }, "decompress it first"),
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
    assert_eq!(left, 3, "the archive, the foreign tar and the compressed one");
}
