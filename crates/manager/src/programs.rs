//! Loads a program's image on a device that holds one image at a time: by its digest, with its
//! bytes only if the node lacks them.

use crate::configuration::User;
use crate::executors::Process;
use crate::images::{self, Metadata};
use crate::node::{Device, Node};
use crate::options::ImageKind;
use crate::registry::ImageRequest;
use baltra_wire::executor::{ToExecutor, Verdict};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Most kernels recorded for an image, for operators, and most bytes of a name.
const KERNELS_MAX: usize = 128;
const KERNEL_NAME_MAX: usize = 256;

/// A session's request to load its program's image, sent by its executor.
pub(crate) struct Question {
    /// A number that the response repeats.
    pub call: u64,
    /// The program's session.
    pub session: u64,
    /// Its image.
    pub digest: String,
    /// Its kernels, if they are known.
    pub kernels: Vec<String>,
    /// The image's bytes.
    pub image: Option<OwnedFd>,
}

impl Node {
    /// Responds immediately if the device holds the image; otherwise a thread responds, so that the
    /// executor's messages are read while the device drains.
    pub(crate) fn program(
        self: &Arc<Self>,
        device: &Arc<Device>,
        process: &Arc<Process>,
        question: Question,
    ) {
        let (call, session) = (question.call, question.session);
        let answer = move |process: &Process, verdict| {
            // An executor that does not read has ended, or will be killed for other reasons.
            let _ = process.send(&ToExecutor::Programmed { call, verdict }, &[]);
        };
        if device.options.image != ImageKind::Exclusive {
            return answer(process, Verdict::Loaded);
        }
        let tenant = self.sessions().get(&session).map(|s| s.tenant.clone());
        let Some(tenant) = tenant.filter(|_| images::is_digest(&question.digest)) else {
            return process.kill("it broke the control protocol");
        };
        let digest = &question.digest;
        if self.images.has(digest) && device.configuration.join(session, &tenant, digest) {
            self.name_kernels(&question);
            self.joins(device, ImageRequest { session, digest });
            return answer(process, Verdict::Loaded);
        }
        // The number of sessions bounds the number of threads.
        if !device.configuration.ask(session) {
            return process.kill("it requested two images at once");
        }
        let spawned = std::thread::Builder::new().name("program".into()).spawn({
            let (node, device, process) = (self.clone(), device.clone(), process.clone());
            move || {
                let reports = process.is_own();
                let verdict = node.verdict(&device, (&tenant, reports), question);
                device.configuration.answered(session);
                answer(&process, verdict);
                if !device
                    .configuration
                    .load_ended(session, device.options.load())
                {
                    process.kill("it did not load an image in time");
                }
            }
        });
        if let Err(error) = spawned {
            device.configuration.answered(session);
            answer(
                process,
                Verdict::Refused(format!("cannot start a thread to load the image: {error}")),
            );
        }
    }

    /// `reports`: whether the executor reports the end of a load.
    fn verdict(
        &self,
        device: &Device,
        (tenant, reports): (&str, bool),
        mut question: Question,
    ) -> Verdict {
        let session = question.session;
        let user = User {
            session,
            tenant,
            reports,
        };
        if let Some(image) = question.image.take() {
            if let Err(error) = self.take_in(tenant, &question, image) {
                tracing::warn!(session, tenant, %error, "cannot store an image");
                return Verdict::Refused(error.to_string());
            }
        }
        let digest = &question.digest;
        let request = ImageRequest { session, digest };
        // The image is not fetched for a change that would be rejected.
        let done = if let Err(reason) = self.check_target(device, digest) {
            Err(reason)
        } else if self.images.has(digest) {
            self.change(device, user, digest).map(|()| Verdict::Loaded)
        } else {
            self.prospect(device, request).map(|()| Verdict::Lacking)
        };
        match done {
            Ok(verdict) => {
                self.name_kernels(&question);
                verdict
            }
            Err(reason) => {
                tracing::info!(session, tenant, reason, "image refused");
                Verdict::Refused(reason)
            }
        }
    }

    /// Reconfigures a device for a session: obtains permission, and ends the sessions that have to
    /// leave.
    fn change(&self, device: &Device, user: User<'_>, digest: &str) -> Result<(), String> {
        let User {
            session, tenant, ..
        } = user;
        let request = ImageRequest { session, digest };
        let _place = device.configuration.queue(digest);
        if self.await_turn(device, tenant, request)? {
            self.joins(device, request);
            return Ok(());
        }
        let answer = self.permission(device, request)?;
        let is_open = |session| self.sessions().contains_key(&session);
        let done = self.clear(device, &answer).and_then(|()| {
            let configured = device.configure(digest, Some(user), is_open, || Ok(()));
            configured.map_err(|error| error.to_string())
        });
        let error = done.as_ref().err().map_or("", String::as_str);
        // If the executor reports the end of the load, so does the node.
        let is_loading = done == Ok(true) && user.reports;
        if !is_loading {
            self.settled(device, digest, answer, error);
        }
        done.map(|_| ())
    }

    fn take_in(
        &self,
        tenant: &str,
        question: &Question,
        image: OwnedFd,
    ) -> Result<(), images::Error> {
        let metadata = Metadata {
            digest: question.digest.clone(),
            kernels: bounded(&question.kernels),
            brought_by: tenant.to_owned(),
            ..Metadata::default()
        };
        self.images.take_in(File::from(image), metadata)?;
        let held: Vec<String> = self
            .devices
            .iter()
            .filter_map(|d| d.configuration.image())
            .collect();
        self.images.trim(images::BROUGHT_BYTES_MAX, &|digest| {
            digest == question.digest || held.iter().any(|h| h == digest)
        })
    }

    /// Records the kernels of a binary, which become available once it is built.
    fn name_kernels(&self, question: &Question) {
        if question.kernels.is_empty() {
            return;
        }
        let kernels = bounded(&question.kernels);
        if let Err(error) = self.images.name_kernels(&question.digest, kernels) {
            tracing::debug!(%error, "cannot record an image's kernels");
        }
    }
}

fn bounded(kernels: &[String]) -> Vec<String> {
    let short = kernels.iter().filter(|name| name.len() <= KERNEL_NAME_MAX);
    short.take(KERNELS_MAX).cloned().collect()
}
