//! Writes the seeds of a target into a folder: `seeds TARGET FOLDER`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::{env, fs};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [target, folder] = arguments.as_slice() else { panic!("write: seeds TARGET FOLDER") };
    for seed in stowplan_fuzz::seeds::of(target) {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        let path = Path::new(folder).join(format!("seed-{:016x}", hasher.finish()));
        fs::write(&path, seed).expect("the folder can be written to");
    }
}
