//! Builds and runs clusters from files that a test writes.
#![allow(dead_code, unreachable_pub)] // each test crate uses a part

use baltra_cluster::{build, run, Build, Cluster, Options, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;

pub fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Serializes the build of the library, which all tests share.
static LIBRARY: Mutex<()> = Mutex::new(());

/// A cluster's files in a folder of the test.
pub struct Bench {
    pub dir: TempDir,
}

impl Bench {
    pub fn new(files: &[(&str, &str)]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Bench { dir }
    }

    pub fn with(&self) -> Build {
        Build {
            out: self.dir.path().join("out"),
            humboldt: tree().join("humboldt"),
            compiler: "cc".to_owned(),
            mpi: None,
        }
    }

    pub fn cluster(&self, map: &str) -> Cluster {
        fs::write(self.dir.path().join("map.yaml"), map).unwrap();
        let [logical, map] = ["logical.yaml", "map.yaml"].map(|f| self.dir.path().join(f));
        Cluster::read(&logical, &map).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Builds; returns the number of compiled programs.
    pub fn compile(&self, map: &str) -> Result<usize, String> {
        let _one = LIBRARY.lock().unwrap_or_else(|e| e.into_inner());
        let built =
            build(&self.cluster(map), &self.with(), &|_| {}).map_err(|e| format!("{e:#}"))?;
        Ok(built.programs.values().filter(|p| p.compiled).count())
    }

    pub fn run(&self, map: &str, options: &Options) -> Result<(Outcome, Vec<String>), String> {
        let (cluster, programs) = {
            // Launchers that run concurrently use the same files.
            let _one = LIBRARY.lock().unwrap_or_else(|e| e.into_inner());
            let cluster = self.cluster(map);
            let with = Build {
                mpi: options.mpi.clone(),
                ..self.with()
            };
            let programs = build(&cluster, &with, &|_| {}).map_err(|e| format!("{e:#}"))?;
            (cluster, programs)
        };
        let mut lines = Vec::new();
        let outcome = run(&cluster, &programs, options, &mut |_, line| {
            lines.push(line.to_owned())
        })
        .map_err(|e| format!("{e:#}"))?;
        lines.sort();
        Ok((outcome, lines))
    }
}
