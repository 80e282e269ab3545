//! Authentication of callers by key, and rate limits.

use crate::http::failure::Failure;
use crate::http::problem::Problem;
use crate::options::Options;
use base64::Engine as _;
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use http::header::{HeaderName, AUTHORIZATION};
use http::HeaderMap;
use sha2::{Digest, Sha256};
use std::num::NonZeroU32;
use std::time::Duration;

/// An alternative header for a key, instead of `Authorization`.
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The tenant of calls without keys, and of functions without a tenant.
pub const ANYONE: &str = "default";

type Bucket = RateLimiter<
    NotKeyed,
    InMemoryState,
    MonotonicClock,
    NoOpMiddleware<<MonotonicClock as Clock>::Instant>,
>;

/// A tenant's index in per-tenant tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantIndex(pub usize);

/// Keys, tenants and their rates.
#[derive(Debug)]
pub struct Keys {
    keys: Vec<([u8; 32], TenantIndex)>,
    tenants: Vec<Tenant>,
    admin: String,
    password: Option<[u8; 32]>,
}

#[derive(Debug)]
struct Tenant {
    name: String,
    bucket: Option<Bucket>,
}

impl Keys {
    /// Takes a validated configuration.
    pub fn new(options: &Options) -> Keys {
        let mut tenants: Vec<Tenant> = Vec::new();
        let mut keys = Vec::new();
        for key in &options.keys {
            let known = tenants.iter().position(|t| t.name == key.tenant);
            let index = known.unwrap_or_else(|| {
                tenants.push(Tenant {
                    name: key.tenant.clone(),
                    bucket: bucket(key.calls_per_s, key.burst),
                });
                tenants.len() - 1
            });
            keys.push((digest(&key.sha256), TenantIndex(index)));
        }
        if tenants.is_empty() {
            tenants.push(Tenant {
                name: ANYONE.to_owned(),
                bucket: None,
            });
        }
        let password = &options.admin.password_sha256;
        Keys {
            keys,
            tenants,
            admin: options.admin.user.clone(),
            password: (!password.is_empty()).then(|| digest(password)),
        }
    }

    /// Number of tenants.
    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// Whether callers need keys.
    pub fn are_wanted(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether management requires a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// A tenant's name.
    pub fn name(&self, tenant: TenantIndex) -> &str {
        &self.tenants[tenant.0].name
    }

    /// The caller's tenant.
    pub fn caller(&self, headers: &HeaderMap) -> Result<TenantIndex, Problem> {
        if self.keys.is_empty() {
            return Ok(TenantIndex(0));
        }
        let shown = shown_key(headers).ok_or_else(Problem::unauthorized_key)?;
        let digest: [u8; 32] = Sha256::digest(shown).into();
        // All keys are compared, so that the time does not reveal which one matched.
        let mut found = None;
        for (key, tenant) in &self.keys {
            if equal(key, &digest) {
                found = Some(*tenant);
            }
        }
        found.ok_or_else(Problem::unauthorized_key)
    }

    /// Takes one call from the tenant's rate allowance.
    pub fn admit(&self, tenant: TenantIndex) -> Result<(), Problem> {
        let tenant = &self.tenants[tenant.0];
        let Some(bucket) = &tenant.bucket else {
            return Ok(());
        };
        bucket.check().map_err(|not_until| {
            let wait = not_until.wait_time_from(MonotonicClock.now());
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let detail = format!("tenant '{}' exceeds its rate of calls", tenant.name);
            let retry_after = seconds.to_string();
            Problem::new(Failure::TooManyRequests, detail)
                .with(http::header::RETRY_AFTER, &retry_after)
        })
    }

    /// Whether the caller may use management.
    pub fn check_admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(password) = &self.password else {
            return Ok(());
        };
        let shown = basic(headers).ok_or_else(Problem::unauthorized_admin)?;
        let (user, word) = shown.split_once(':').unwrap_or((&shown, ""));
        let word: [u8; 32] = Sha256::digest(word.as_bytes()).into();
        let right_user = equal(
            &Sha256::digest(user.as_bytes()).into(),
            &Sha256::digest(self.admin.as_bytes()).into(),
        );
        if equal(password, &word) & right_user {
            Ok(())
        } else {
            Err(Problem::unauthorized_admin())
        }
    }
}

/// The key in `Authorization: Bearer KEY` or in the alternative header.
fn shown_key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get(X_API_KEY) {
        return Some(key.as_bytes());
    }
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then_some(key.trim_ascii())
}

/// User and password of basic authentication.
fn basic(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, text) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let standard = base64::engine::general_purpose::STANDARD;
    String::from_utf8(standard.decode(text.trim_ascii()).ok()?).ok()
}

/// Compares in constant time.
fn equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differing = one.iter().zip(other).fold(0u8, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differing) == 0
}

/// Decodes 64 validated digits.
fn digest(hex: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        let digits = hex.get(2 * i..2 * i + 2).unwrap_or("00");
        *byte = u8::from_str_radix(digits, 16).unwrap_or(0);
    }
    bytes
}

fn bucket(calls_per_s: u32, burst: u32) -> Option<Bucket> {
    let rate = NonZeroU32::new(calls_per_s)?;
    let burst = NonZeroU32::new(burst).unwrap_or(rate);
    let quota = Quota::with_period(Duration::from_secs(1) / calls_per_s)?.allow_burst(burst);
    Some(RateLimiter::direct_with_clock(quota, MonotonicClock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::KeyOptions;
    use http::HeaderValue;

    fn sha256(text: &str) -> String {
        Sha256::digest(text)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    fn keys() -> Keys {
        let mut options = Options::default();
        for (tenant, key, calls_per_s) in [("red", "r1", 2), ("blue", "b1", 0), ("red", "r2", 0)] {
            options.keys.push(KeyOptions {
                tenant: tenant.into(),
                sha256: sha256(key),
                calls_per_s,
                burst: 0,
            });
        }
        options.admin.password_sha256 = sha256("secret");
        Keys::new(&options)
    }

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_key_names_its_tenant() {
        let keys = keys();
        for (header, value, tenant) in [
            (AUTHORIZATION, "Bearer r1", "red"),
            (AUTHORIZATION, "bearer r2", "red"),
            (X_API_KEY, "b1", "blue"),
        ] {
            let caller = keys.caller(&headers(header, value)).unwrap();
            assert_eq!(keys.name(caller), tenant);
        }
        for wrong in ["Bearer r3", "Bearer ", "Basic r1", "r1", ""] {
            let problem = keys.caller(&headers(AUTHORIZATION, wrong)).unwrap_err();
            assert_eq!(problem.status, 401, "{wrong:?}");
        }
        assert_eq!(keys.caller(&HeaderMap::new()).unwrap_err().status, 401);
    }

    #[test]
    fn a_rate_holds_for_all_keys_of_a_tenant() {
        let keys = keys();
        let caller = |key| keys.caller(&headers(X_API_KEY, key)).unwrap();
        keys.admit(caller("r1")).unwrap();
        keys.admit(caller("r2")).unwrap();
        let problem = keys.admit(caller("r1")).unwrap_err();
        assert_eq!(problem.status, 429);
        assert!(problem
            .response::<bytes::Bytes>()
            .headers()
            .contains_key("retry-after"));
        for _ in 0..1000 {
            keys.admit(caller("b1")).unwrap();
        }
    }

    #[test]
    fn management_wants_its_password() {
        let keys = keys();
        let encode = |text: &str| {
            let text = base64::engine::general_purpose::STANDARD.encode(text);
            headers(AUTHORIZATION, &format!("Basic {text}"))
        };
        keys.check_admin(&encode("admin:secret")).unwrap();
        for wrong in ["admin:Secret", "root:secret", "admin", ":secret", ""] {
            assert_eq!(keys.check_admin(&encode(wrong)).unwrap_err().status, 401);
        }
        assert!(keys.check_admin(&HeaderMap::new()).is_err());
    }

    #[test]
    fn without_keys_anyone_calls() {
        let keys = Keys::new(&Options::default());
        let caller = keys.caller(&HeaderMap::new()).unwrap();
        assert_eq!(keys.name(caller), ANYONE);
        keys.check_admin(&HeaderMap::new()).unwrap();
    }
}
