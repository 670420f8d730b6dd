//! Objects in an S3 bucket.
//!
//! A presigned link cannot be limited to one use, and clients of the public network send no content type that it could
//! be bound to. So uploads arrive under `incoming/`, and get their name once the coordinator has checked them: from
//! then on the link changes nothing any more.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{
    Attribute, Attributes, ClientOptions, Error, ObjectStore, ObjectStoreExt, PutOptions,
    PutPayload, Result, RetryConfig,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;
use tracing::{error, info};

use super::key::{Area, Key};
use super::{StoredObject, Unaccepted, check_type};
use muster_media::{MediaType, SIGNATURE_BYTES};

/// Location and credentials of a bucket.
#[derive(Clone)]
pub struct BucketSettings {
    pub name: String,
    pub region: String,
    /// For services other than Amazon's.
    pub endpoint: Option<String>,
    /// Key id and secret. `None` uses the machine's own credentials.
    pub key: Option<(String, String)>,
}

#[derive(Debug)]
pub struct Bucket {
    store: AmazonS3,
    /// The same with a short timeout, for checks.
    probe: AmazonS3,
    problem: Mutex<Option<&'static str>>,
}

const INCOMING: &str = "incoming";
const PATIENCE: Duration = Duration::from_secs(30);
const RETRIES: usize = 3;
/// Together with the interval of the checks at most five seconds.
const PROBE_PATIENCE: Duration = Duration::from_millis(1500);

const UNREACHABLE: &str = "the media bucket does not answer: check the endpoint in serve.media and the network, uploads are tried again until it does";
const REFUSED: &str =
    "the media bucket refuses access: check the key in serve.media and its rights";

impl Bucket {
    pub fn open(settings: &BucketSettings) -> Result<Self> {
        Ok(Self {
            store: client(settings, PATIENCE, RETRIES)?,
            probe: client(settings, PROBE_PATIENCE, 0)?,
            problem: Mutex::default(),
        })
    }

    /// The problem found by the last check, if any.
    pub fn problem(&self) -> Option<&'static str> {
        *self.lock()
    }

    /// Checks the bucket periodically.
    pub async fn watch(&self) {
        let probed = timeout(PROBE_PATIENCE, first(&self.probe)).await;
        let problem = match probed {
            Ok(Ok(())) => None,
            Ok(Err(Error::PermissionDenied { .. } | Error::Unauthenticated { .. })) => {
                Some(REFUSED)
            }
            Ok(Err(_)) | Err(_) => Some(UNREACHABLE),
        };
        let before = std::mem::replace(&mut *self.lock(), problem);
        match (before, problem) {
            (None, Some(problem)) => error!("media is unavailable: {problem}"),
            (Some(_), None) => info!("the media bucket is available again"),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.problem.lock()
    }

    /// Whether the bucket replies and grants access.
    pub async fn look(&self) -> Result<()> {
        first(&self.store).await
    }

    pub async fn put(&self, key: Key, bytes: Bytes) -> Result<()> {
        let kind = key.kind().content_type();
        let options = PutOptions {
            attributes: Attributes::from_iter([(Attribute::ContentType, kind)]),
            ..PutOptions::default()
        };
        let payload = PutPayload::from(bytes);
        let path = place(key);
        let put = self.store.put_opts(&path, payload, options).await;
        put.map(drop)
    }

    pub async fn get(&self, key: Key) -> Result<Option<Bytes>> {
        let got = async { self.store.get(&place(key)).await?.bytes().await };
        found(got.await)
    }

    pub async fn size(&self, key: Key) -> Result<Option<u64>> {
        let head = self.store.head(&place(key)).await;
        Ok(found(head)?.map(|object| object.size))
    }

    pub async fn delete(&self, key: Key) -> Result<()> {
        for path in [place(key), incoming(key)] {
            found(self.store.delete(&path).await)?;
        }
        Ok(())
    }

    pub async fn download_link(&self, key: Key, valid_for: Duration) -> Result<String> {
        let path = place(key);
        let link = self.store.signed_url(Method::GET, &path, valid_for).await;
        link.map(String::from)
    }

    pub async fn upload_link(&self, key: Key, valid_for: Duration) -> Result<String> {
        let path = incoming(key);
        let link = self.store.signed_url(Method::PUT, &path, valid_for).await;
        link.map(String::from)
    }

    /// Checks an upload and gives it its final name. Returns its size, `None` if it is missing.
    pub async fn take_in(
        &self,
        key: Key,
        most: u64,
    ) -> std::result::Result<Option<u64>, Unaccepted> {
        if let Some(bytes) = self.size(key).await? {
            return Ok(Some(bytes));
        }
        let came = incoming(key);
        let Some(object) = found(self.store.head(&came).await)? else {
            return Ok(None);
        };
        if object.size > most {
            self.store.delete(&came).await?;
            return Err(Unaccepted::TooLarge { most });
        }
        let beginning = object.size.min(SIGNATURE_BYTES as u64);
        let beginning = match beginning {
            0 => Bytes::new(),
            bytes => self.store.get_range(&came, 0..bytes).await?,
        };
        if let Err(other) = check_type(key, MediaType::sniff(&beginning)) {
            self.store.delete(&came).await?;
            return Err(other);
        }
        self.store.copy(&came, &place(key)).await?;
        self.store.delete(&came).await?;
        Ok(Some(object.size))
    }

    /// Includes uploads that were not accepted yet.
    pub async fn objects(&self) -> Result<Vec<StoredObject>> {
        let mut objects = Vec::new();
        for area in Area::ALL.map(Area::name).into_iter().chain([INCOMING]) {
            let listed = self.store.list(Some(&Path::from(area)));
            let listed: Vec<_> = listed.try_collect().await?;
            for object in listed {
                let name = object.location.as_ref();
                let incoming = name
                    .strip_prefix(INCOMING)
                    .and_then(|rest| rest.strip_prefix('/'));
                if let Ok(key) = incoming.unwrap_or(name).parse() {
                    let bytes = object.size;
                    objects.push(StoredObject { key, bytes });
                }
            }
        }
        Ok(objects)
    }

    /// Removes objects older than `keep`. Returns their number.
    pub async fn sweep(&self, keep: Duration) -> Result<u64> {
        let Some(before) = SystemTime::now().checked_sub(keep) else {
            return Ok(0);
        };
        let mut removed = 0;
        for area in Area::ALL.map(Area::name).into_iter().chain([INCOMING]) {
            let listed = self.store.list(Some(&Path::from(area)));
            let old = listed.try_filter_map(move |object| async move {
                let modified = SystemTime::from(object.last_modified);
                Ok((modified < before).then_some(object.location))
            });
            let deleted = self.store.delete_stream(old.boxed());
            let deleted: Vec<Path> = deleted.try_collect().await?;
            removed += u64::try_from(deleted.len()).unwrap_or(u64::MAX);
        }
        Ok(removed)
    }
}

fn client(settings: &BucketSettings, patience: Duration, retries: usize) -> Result<AmazonS3> {
    // An earlier call may have installed the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plain = |endpoint: &String| endpoint.starts_with("http://");
    let options = ClientOptions::new()
        .with_timeout(patience)
        .with_allow_http(settings.endpoint.as_ref().is_some_and(plain));
    let builder = AmazonS3Builder::new()
        .with_bucket_name(&settings.name)
        .with_region(&settings.region)
        .with_client_options(options)
        .with_retry(RetryConfig {
            max_retries: retries,
            retry_timeout: patience,
            ..RetryConfig::default()
        });
    let builder = match &settings.endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder,
    };
    let builder = match &settings.key {
        Some((id, secret)) => builder
            .with_access_key_id(id)
            .with_secret_access_key(secret),
        None => builder,
    };
    builder.build()
}

/// Lists the first object of a folder.
async fn first(store: &AmazonS3) -> Result<()> {
    let first = store.list(Some(&Path::from(INCOMING))).next().await;
    first.transpose().map(drop)
}

impl std::fmt::Debug for BucketSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketSettings")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

fn place(key: Key) -> Path {
    Path::from(key.to_string())
}

fn incoming(key: Key) -> Path {
    Path::from(format!("{INCOMING}/{key}"))
}

fn found<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(Error::NotFound { .. }) => Ok(None),
        outcome => outcome.map(Some),
    }
}
