//! The webhook's certificate: self-issued, stored in a Secret, renewed in time.
//!
//! Each renewal creates a new authority and one certificate. The authority's key is discarded at
//! once, so it cannot sign another certificate. The Secret holds the new and the previous
//! authority, and the cluster's webhook configurations trust both. The new certificate is used only
//! after the configurations have been updated, so that no request meets an untrusted certificate,
//! with any number of replicas. A replica that loses the race to renew uses the winner's Secret.

use super::Options;
use anyhow::{anyhow, Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec};
use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Annotation of the Secret with the certificate's expiry, seconds since 1970.
const NOT_AFTER: &str = "baltra.io/not-after";
/// Allowance for clock differences: certificates are valid from this time before now.
const CLOCKS_DIFFER: Duration = Duration::from_secs(300);

/// The content of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CertificateSecret {
    /// Authorities to trust, the newest first, PEM.
    authorities: String,
    certificate: String,
    key: String,
    not_after_s: u64,
}

/// Serves the current certificate.
#[derive(Debug)]
pub struct Keeper {
    now: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ResolvesServerCert for Keeper {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.now.read().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Keeper {
    /// Loads or creates the certificate, and renews it while the runtime exists.
    ///
    /// # Errors
    /// The Secret or a configuration cannot be read or written.
    pub async fn start(client: Client, options: &Options) -> Result<Arc<Keeper>> {
        let keeper = Arc::new(Keeper {
            now: RwLock::new(None),
        });
        let mut known = None;
        keeper.look(&client, options, &mut known).await?;
        let (kept, options) = (keeper.clone(), options.clone());
        tokio::spawn(async move {
            let pause = Duration::from_secs((options.certificate_s / 30).clamp(1, 10));
            loop {
                tokio::time::sleep(pause).await;
                if let Err(error) = kept.look(&client, &options, &mut known).await {
                    tracing::warn!(error = %format!("{error:#}"), "cannot maintain the certificate");
                }
            }
        });
        Ok(keeper)
    }

    /// Synchronizes the Secret, the configurations and the served certificate.
    async fn look(
        &self,
        client: &Client,
        options: &Options,
        known: &mut Option<CertificateSecret>,
    ) -> Result<()> {
        let made = current(client, options).await?;
        // In every round, because a configuration that was applied again lacks it.
        trust(client, options, &made.authorities).await?;
        if known.as_ref() != Some(&made) {
            let shown = certified(&made)?;
            *self.now.write().unwrap_or_else(|e| e.into_inner()) = Some(Arc::new(shown));
            tracing::info!(not_after_s = made.not_after_s, "the certificate");
            *known = Some(made);
        }
        Ok(())
    }
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |t| t.as_secs())
}

/// The Secret's certificate if it is valid for at least a third of its lifetime, otherwise a new
/// one.
async fn current(client: &Client, options: &Options) -> Result<CertificateSecret> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &options.common.namespace);
    for _ in 0..5 {
        let found = secrets.get_opt(&options.secret).await.with_context(|| {
            format!(
                "cannot read the Secret {}/{}",
                options.common.namespace, options.secret
            )
        })?;
        let known = found.as_ref().and_then(read);
        if let Some(made) = known
            .as_ref()
            .filter(|m| m.not_after_s > now_s() + options.certificate_s / 3)
        {
            return Ok(made.clone());
        }
        let made = make(options, known.as_ref().map(|m| m.authorities.as_str()))?;
        let mut secret = secret(options, &made);
        let written = match found {
            None => secrets.create(&PostParams::default(), &secret).await,
            Some(found) => {
                secret.metadata.resource_version = found.metadata.resource_version;
                secrets
                    .replace(&options.secret, &PostParams::default(), &secret)
                    .await
            }
        };
        match written {
            Ok(_) => return Ok(made),
            // Another replica was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => continue,
            Err(error) => return Err(error).context("cannot write the webhook's Secret"),
        }
    }
    Err(anyhow!(
        "the webhook's Secret keeps changing: does another release use it?"
    ))
}

fn read(secret: &Secret) -> Option<CertificateSecret> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let annotations = secret.metadata.annotations.as_ref()?;
    let made = CertificateSecret {
        authorities: text("ca.crt")?,
        certificate: text("tls.crt")?,
        key: text("tls.key")?,
        not_after_s: annotations.get(NOT_AFTER)?.parse().ok()?,
    };
    // An unusable certificate is treated as missing.
    certified(&made).is_ok().then_some(made)
}

fn secret(options: &Options, made: &CertificateSecret) -> Secret {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: kube::api::ObjectMeta {
            name: Some(options.secret.clone()),
            namespace: Some(options.common.namespace.clone()),
            annotations: Some(BTreeMap::from([(
                NOT_AFTER.to_owned(),
                made.not_after_s.to_string(),
            )])),
            ..Default::default()
        },
        data: Some(BTreeMap::from([
            ("ca.crt".to_owned(), bytes(&made.authorities)),
            ("tls.crt".to_owned(), bytes(&made.certificate)),
            ("tls.key".to_owned(), bytes(&made.key)),
        ])),
        ..Default::default()
    }
}

/// Creates a new authority and its one certificate.
fn make(options: &Options, before: Option<&str>) -> Result<CertificateSecret> {
    let now = SystemTime::now();
    let not_after = now + Duration::from_secs(options.certificate_s);
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Authorities with equal names would be confused.
    let name = format!("baltra webhook {}", now_s());
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.not_before = (now - CLOCKS_DIFFER).into();
    // The authority outlives its certificate.
    authority.not_after = (not_after + CLOCKS_DIFFER).into();
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;

    let (service, namespace) = (&options.service, &options.common.namespace);
    let mut names = vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    names.extend(options.dns_name.iter().cloned());
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, service.clone());
    params.not_before = (now - CLOCKS_DIFFER).into();
    params.not_after = not_after.into();
    let key = KeyPair::generate()?;
    let issuer = Issuer::from_params(&authority, &authority_key);
    let certificate = params.signed_by(&key, &issuer)?;
    let mut authorities = authority_certificate.pem();
    if let Some(newest) = before.and_then(first_pem) {
        authorities.push_str(&newest);
    }
    Ok(CertificateSecret {
        authorities,
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        not_after_s: not_after.duration_since(UNIX_EPOCH)?.as_secs(),
    })
}

fn first_pem(bundle: &str) -> Option<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let end = bundle.find(END)? + END.len();
    Some(format!("{}\n", bundle[..end].trim_start()))
}

fn certified(made: &CertificateSecret) -> Result<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(made.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes())?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
    Ok(CertifiedKey::new(chain, key))
}

/// Updates the trusted authorities in both configurations and in the scaling signals' APIService,
/// if they exist and differ.
async fn trust(client: &Client, options: &Options, authorities: &str) -> Result<()> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let wanted = ByteString(authorities.as_bytes().to_vec());
    let (name, service) = (options.configuration.as_str(), options.service.as_str());
    let why = || format!("cannot update the caBundle of the webhook configuration '{name}'");
    let params = PatchParams::default();
    if let Some(found) = mutating.get_opt(name).await.with_context(why)? {
        let hooks = found.webhooks.unwrap_or_default().into_iter();
        let stale = stale(hooks.map(|w| (w.name, w.client_config.ca_bundle)), &wanted);
        if let Some(patch) = stale {
            let patch = Patch::Strategic(&patch);
            mutating
                .patch(name, &params, &patch)
                .await
                .with_context(why)?;
        }
    }
    if let Some(found) = validating.get_opt(name).await.with_context(why)? {
        let hooks = found.webhooks.unwrap_or_default().into_iter();
        let stale = stale(hooks.map(|w| (w.name, w.client_config.ca_bundle)), &wanted);
        if let Some(patch) = stale {
            let patch = Patch::Strategic(&patch);
            validating
                .patch(name, &params, &patch)
                .await
                .with_context(why)?;
        }
    }
    let services: Api<APIService> = Api::all(client.clone());
    let (group, version) = super::scaling::API.split_once('/').unwrap_or_default();
    let name = format!("{version}.{group}");
    let found = match services.get_opt(&name).await {
        Ok(found) => found,
        // Without the scaling signals, the role lacks the permission to read it.
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read the APIService '{name}'"))
        }
    };
    // The APIService belongs to another adapter.
    let spec = found
        .and_then(|s| s.spec)
        .filter(|s| s.ca_bundle.as_ref() != Some(&wanted));
    let ours =
        |s: &APIServiceSpec| s.service.as_ref().and_then(|s| s.name.as_deref()) == Some(service);
    if spec.is_some_and(|s| ours(&s)) {
        let patch = json!({"spec": {"caBundle": wanted}});
        let patched = services.patch(&name, &params, &Patch::Merge(&patch)).await;
        patched
            .with_context(|| format!("cannot update the caBundle of the APIService '{name}'"))?;
    }
    Ok(())
}

/// A patch of the webhooks, by name, whose authorities differ; `None` if all are current.
fn stale(
    hooks: impl Iterator<Item = (String, Option<ByteString>)>,
    wanted: &ByteString,
) -> Option<Value> {
    let stale = hooks.filter(|(_, known)| known.as_ref() != Some(wanted));
    let hooks: Vec<Value> = stale
        .map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": wanted}}))
        .collect();
    (!hooks.is_empty()).then(|| json!({"webhooks": hooks}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::tests::options;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};

    fn trusts(authorities: &str, made: &CertificateSecret, name: &str) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            roots.add(der.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let shown = certified(made).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .verify_server_cert(&shown.cert[0], &[], &name, &[], UnixTime::now())
            .is_ok()
    }

    #[test]
    fn a_certificate_is_trusted_by_its_own_bundle_and_the_next_one() {
        let options = options();
        let first = make(&options, None).unwrap();
        assert!(trusts(
            &first.authorities,
            &first,
            "baltra-webhook.baltra.svc"
        ));
        assert!(trusts(&first.authorities, &first, "127.0.0.1"));
        assert!(!trusts(&first.authorities, &first, "other.baltra.svc"));
        let second = make(&options, Some(&first.authorities)).unwrap();
        assert!(trusts(&second.authorities, &second, "localhost"));
        assert!(trusts(&second.authorities, &first, "localhost"));
        assert!(!trusts(&first.authorities, &second, "localhost"));
        let third = make(&options, Some(&second.authorities)).unwrap();
        assert!(trusts(&third.authorities, &second, "localhost"));
        assert_eq!(third.authorities.matches("BEGIN CERTIFICATE").count(), 2);
    }

    #[test]
    fn a_secret_keeps_it_and_one_that_is_damaged_counts_as_none() {
        let options = options();
        let made = make(&options, None).unwrap();
        let mut kept = secret(&options, &made);
        assert_eq!(read(&kept), Some(made));
        let data = kept.data.as_mut().unwrap();
        data.insert("tls.key".into(), ByteString(b"no key".to_vec()));
        assert_eq!(read(&kept), None);
    }

    #[test]
    fn only_stale_bundles_are_written() {
        let (old, new) = (ByteString(b"old".to_vec()), ByteString(b"new".to_vec()));
        let hooks = [("a", Some(&new)), ("b", Some(&old)), ("c", None)];
        let hooks = hooks.map(|(name, known)| (name.to_owned(), known.cloned()));
        let patch = stale(hooks.into_iter(), &new).unwrap();
        let names: Vec<&Value> = patch["webhooks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|w| &w["name"])
            .collect();
        assert_eq!(names, [&json!("b"), &json!("c")]);
        assert!(stale([("a".to_owned(), Some(new.clone()))].into_iter(), &new).is_none());
    }
}
