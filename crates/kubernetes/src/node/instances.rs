//! A directory for each Pod and claim, `RUNTIME/instances/NAME`, which only that Pod mounts:
//!
//! | file | content |
//! |---|---|
//! | `environment` | its identity for the manager, including its token (the library reads it) |
//! | `baltra.sock` | the manager's socket for authentication by token only |
//! | `libbaltra_opencl.so`, `libOpenCL.so.1` | the library, also as the loader for images without one |
//! | `baltra.icd` | for images with a loader |
//! | `claim` | marks a claim, which stays until the kubelet unprepares it |
//!
//! For the manager, each directory is a separate tenant that may use only its devices and belongs
//! to the namespace's tenant. The socket and the library are hard links, so that running Pods see
//! the socket of a restarted manager.

use crate::annotations::Share;
use crate::{INSTANCES_DIR, MOUNT};
use anyhow::{bail, Context, Result};
use baltra_api::control::control_client::ControlClient;
use baltra_api::control::{
    Quota, Tenant, TenantAddRequest, TenantRemoveRequest, TenantTokenRequest, TenantsRequest,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{symlink, DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tonic::transport::Channel;
use tonic::Code;

const LIBRARY: &str = "libbaltra_opencl.so";
const SOCKET: &str = "baltra.sock";
const CLAIM: &str = "claim";

/// The identity of a Pod or a claim for the manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its instance.
    pub instance: String,
    /// The namespace: the registry's tenant.
    pub owner: String,
    /// Devices of this node, by name.
    pub devices: Vec<String>,
    /// Share of the devices' time.
    pub share: Share,
    /// Limit of device memory; `None`: the default of the node's configuration.
    pub memory_bytes: Option<u64>,
}

/// The directories of a node.
pub struct Instances {
    runtime: PathBuf,
    root: PathBuf,
    library: PathBuf,
    manager: ControlClient<Channel>,
}

impl Instances {
    /// Creates the root directory, which only root may read, and copies the library there.
    ///
    /// # Errors
    /// The library is missing, or the directory cannot be created.
    pub fn new(
        runtime: &Path,
        library: &Path,
        manager: ControlClient<Channel>,
    ) -> Result<Instances> {
        let root = runtime.join(INSTANCES_DIR);
        let make = |path: &Path, mode| {
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(path);
            made.with_context(|| format!("cannot create {}", path.display()))
        };
        make(&root, 0o700)?;
        let kept = runtime.join("library");
        make(&kept, 0o755)?;
        let instances = Instances {
            runtime: runtime.to_owned(),
            library: kept.join(LIBRARY),
            root,
            manager,
        };
        instances.bring(library)?;
        Ok(instances)
    }

    /// Copies the library to the directories' file system, because hard links cannot cross file
    /// systems.
    fn bring(&self, library: &Path) -> Result<()> {
        let bytes = fs::read(library).with_context(|| {
            format!(
                "cannot read the library {}: set its path with --library",
                library.display()
            )
        })?;
        if fs::read(&self.library).ok().as_deref() == Some(&bytes[..]) {
            return Ok(());
        }
        let kept = self.library.parent().unwrap_or(&self.runtime);
        // Processes that have mapped the old file keep it.
        replace(kept, &self.library, &bytes, 0o755)
    }

    /// Creates missing directories and removes unneeded ones, except those of claims. Returns the
    /// numbers of both.
    ///
    /// # Errors
    /// The operations that failed; all others have been carried out.
    pub async fn follow(&mut self, wanted: &[Identity]) -> Result<(usize, usize)> {
        let tenants = self.tenants().await?;
        let (mut made, mut removed, mut failure) = (0, 0, None);
        for identity in wanted {
            match self.ensure_tenant(identity, &tenants).await {
                Ok(new) => made += usize::from(new),
                Err(error) => failure = Some(error),
            }
        }
        let names: BTreeSet<&str> = wanted.iter().map(|i| i.instance.as_str()).collect();
        let mut present: BTreeSet<String> = tenants.into_keys().collect();
        for entry in fs::read_dir(&self.root)?.flatten() {
            present.extend(entry.file_name().into_string().ok());
        }
        for name in present {
            let directory = self.root.join(&name);
            if !names.contains(name.as_str()) && !directory.join(CLAIM).exists() {
                match self.remove(&name).await {
                    Ok(()) => removed += 1,
                    Err(error) => failure = Some(error),
                }
            } else {
                self.link_socket(&directory)?;
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok((made, removed)),
        }
    }

    /// Creates the directory of a claim; an existing one is unchanged.
    ///
    /// # Errors
    /// The operation that failed.
    pub async fn ensure_claim(&mut self, identity: &Identity) -> Result<PathBuf> {
        let directory = self.directory(&identity.instance)?;
        make_directory(&directory)?;
        // Written first, so that a concurrent round does not remove the directory.
        fs::write(directory.join(CLAIM), b"")?;
        let tenants = self.tenants().await?;
        self.ensure_tenant(identity, &tenants).await?;
        Ok(directory)
    }

    /// The manager's tenants that this agent created: those that belong to another tenant.
    async fn tenants(&mut self) -> Result<BTreeMap<String, Tenant>> {
        let reply = self.manager.tenants(TenantsRequest {}).await;
        let reply = reply.context("the manager did not list its tenants")?;
        let ours = reply.into_inner().tenants.into_iter();
        let ours = ours.filter(|t| !t.owner.is_empty());
        Ok(ours.map(|t| (t.name.clone(), t)).collect())
    }

    async fn ensure_tenant(
        &mut self,
        identity: &Identity,
        tenants: &BTreeMap<String, Tenant>,
    ) -> Result<bool> {
        let directory = self.directory(&identity.instance)?;
        let tenant = tenants.get(&identity.instance);
        let same = tenant.is_some_and(|t| is_same(t, identity));
        if same && directory.join("environment").exists() {
            return Ok(false);
        }
        if tenant.is_some() && !same {
            self.remove_tenant(&identity.instance).await?;
        }
        if !same {
            self.add_tenant(identity).await?;
        }
        let request = TenantTokenRequest {
            name: identity.instance.clone(),
        };
        let token = self.manager.tenant_token(request).await?.into_inner().token;
        make_directory(&directory)?;
        self.link_library(&directory)?;
        self.link_socket(&directory)?;
        let icd = format!("{MOUNT}/{LIBRARY}\n");
        replace(
            &directory,
            &directory.join("baltra.icd"),
            icd.as_bytes(),
            0o644,
        )?;
        let text = environment(identity, &token);
        // Written last: it completes the directory, which only its Pod can mount.
        replace(
            &directory,
            &directory.join("environment"),
            text.as_bytes(),
            0o444,
        )?;
        tracing::info!(instance = identity.instance, devices = ?identity.devices, "made");
        Ok(tenant.is_none())
    }

    async fn add_tenant(&mut self, identity: &Identity) -> Result<()> {
        let request = TenantAddRequest {
            name: identity.instance.clone(),
            weight: 1,
            quota: Some(Quota {
                memory_bytes: identity.memory_bytes,
                ..Quota::default()
            }),
            owner: identity.owner.clone(),
            devices: identity.devices.clone(),
            share: identity.share.request,
            share_max: identity.share.limit,
            ..TenantAddRequest::default()
        };
        let added = self.manager.tenant_add(request).await;
        added.with_context(|| format!("the manager refused instance '{}'", identity.instance))?;
        Ok(())
    }

    async fn remove_tenant(&mut self, name: &str) -> Result<()> {
        let request = TenantRemoveRequest {
            name: name.to_owned(),
        };
        match self.manager.tenant_remove(request).await {
            Err(status) if status.code() != Code::NotFound => Err(status.into()),
            _ => Ok(()),
        }
    }

    /// Ends the sessions of an instance and removes its directory.
    ///
    /// # Errors
    /// The operation that failed.
    pub async fn remove(&mut self, name: &str) -> Result<()> {
        let directory = self.directory(name)?;
        self.remove_tenant(name).await?;
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", directory.display()))
            }
            _ => {
                tracing::info!(instance = name, "removed");
                Ok(())
            }
        }
    }

    /// Names come from objects: a name that leads to another directory is rejected.
    fn directory(&self, name: &str) -> Result<PathBuf> {
        if !baltra_api::valid_name(name) || name.starts_with('.') {
            bail!("'{name}' is not an instance's name");
        }
        Ok(self.root.join(name))
    }

    fn link_library(&self, directory: &Path) -> Result<()> {
        let link = directory.join(LIBRARY);
        if inode(&link) != inode(&self.library) {
            relink(&self.library, &link)?;
        }
        let loader = directory.join("libOpenCL.so.1");
        if fs::symlink_metadata(&loader).is_err() {
            symlink(LIBRARY, &loader)?;
        }
        Ok(())
    }

    /// A restarted manager listens on a new socket.
    fn link_socket(&self, directory: &Path) -> Result<()> {
        let socket = self.runtime.join("token.sock");
        let link = directory.join(SOCKET);
        match inode(&socket) {
            Some(now) if inode(&link) != Some(now) && directory.is_dir() => relink(&socket, &link),
            _ => Ok(()),
        }
    }
}

fn make_directory(directory: &Path) -> Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory);
    made.with_context(|| format!("cannot create {}", directory.display()))
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Creates or replaces a link atomically.
fn relink(to: &Path, link: &Path) -> Result<()> {
    let fresh = link.with_extension("new");
    let _ = fs::remove_file(&fresh);
    fs::hard_link(to, &fresh)
        .and_then(|()| fs::rename(&fresh, link))
        .with_context(|| format!("cannot link {} to {}", link.display(), to.display()))
}

/// Writes a file atomically.
fn replace(directory: &Path, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = directory.join(format!(".{name}.new"));
    let _ = fs::remove_file(&fresh);
    let write = || -> std::io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&fresh)?;
        file.write_all(bytes)?;
        fs::rename(&fresh, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Whether a tenant matches an identity.
fn is_same(tenant: &Tenant, identity: &Identity) -> bool {
    let quota = tenant.quota.unwrap_or_default();
    tenant.owner == identity.owner
        && tenant.devices == identity.devices
        && tenant.share == identity.share.request
        && tenant.share_max == identity.share.limit
        && quota.memory_bytes == identity.memory_bytes
}

/// The contents of the file that the library reads.
fn environment(identity: &Identity, token: &str) -> String {
    let instance = &identity.instance;
    format!(
        "BALTRA_ENDPOINT=unix:{MOUNT}/{SOCKET}\nBALTRA_DEVICE={}\nBALTRA_TENANT={instance}\n\
         BALTRA_INSTANCE={instance} (restarts)\nBALTRA_TOKEN={token}\n",
        identity.devices.join(","),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instances(dir: &Path) -> Instances {
        fs::write(dir.join("lib.so"), b"library").unwrap();
        let manager = crate::node::control(dir).unwrap();
        Instances::new(dir, &dir.join("lib.so"), manager).unwrap()
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let instances = instances(dir.path());
        for name in ["", "..", ".", "a/b", "../x", ".hidden"] {
            assert!(instances.directory(name).is_err(), "{name}");
        }
        assert!(instances
            .directory("red.0011")
            .unwrap()
            .starts_with(dir.path()));
    }

    #[tokio::test]
    async fn a_new_manager_s_socket_takes_the_old_one_s_place() {
        let dir = tempfile::tempdir().unwrap();
        let instances = instances(dir.path());
        let own = dir.path().join("instances/a");
        make_directory(&own).unwrap();
        // There is no manager yet, so there is no socket to link.
        instances.link_socket(&own).unwrap();
        assert!(!own.join(SOCKET).exists());
        let path = dir.path().join("token.sock");
        let first = std::os::unix::net::UnixListener::bind(&path).unwrap();
        instances.link_socket(&own).unwrap();
        std::os::unix::net::UnixStream::connect(own.join(SOCKET)).unwrap();
        drop(first);
        fs::remove_file(&path).unwrap();
        let _second = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(std::os::unix::net::UnixStream::connect(own.join(SOCKET)).is_err());
        instances.link_socket(&own).unwrap();
        std::os::unix::net::UnixStream::connect(own.join(SOCKET)).unwrap();
    }

    #[tokio::test]
    async fn the_library_is_one_file_in_all_directories_and_follows_a_new_release() {
        let dir = tempfile::tempdir().unwrap();
        let instances = instances(dir.path());
        let own = dir.path().join("instances/a");
        make_directory(&own).unwrap();
        instances.link_library(&own).unwrap();
        assert_eq!(fs::read(own.join("libOpenCL.so.1")).unwrap(), b"library");
        assert_eq!(inode(&own.join(LIBRARY)), inode(&instances.library));
        fs::write(dir.path().join("lib.so"), b"newer").unwrap();
        instances.bring(&dir.path().join("lib.so")).unwrap();
        assert_eq!(fs::read(own.join(LIBRARY)).unwrap(), b"library");
        instances.link_library(&own).unwrap();
        assert_eq!(fs::read(own.join(LIBRARY)).unwrap(), b"newer");
    }

    #[test]
    fn what_the_library_reads_says_who_it_is() {
        let identity = Identity {
            instance: "red.1".into(),
            devices: vec!["a".into(), "b".into()],
            ..Identity::default()
        };
        let text = environment(&identity, "secret");
        for line in [
            "BALTRA_ENDPOINT=unix:/baltra/baltra.sock",
            "BALTRA_DEVICE=a,b",
            "BALTRA_INSTANCE=red.1 (restarts)",
            "BALTRA_TOKEN=secret",
        ] {
            assert!(text.lines().any(|l| l == line), "{text}");
        }
    }
}
