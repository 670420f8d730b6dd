//! The objects of an account, by the jobs and requests in their names.

use std::collections::HashSet;

use uuid::Uuid;

use super::{Key, Media, MediaError, Place};

/// Leading bits that an id shares with its job tickets, which differ in the last bits only (`pollers`).
const OWN_BITS: u32 = 56;

/// Ids of jobs and requests.
#[derive(Debug, Clone, Default)]
pub struct Owners(HashSet<u128>);

/// An object and its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredObject {
    pub key: Key,
    pub bytes: u64,
}

impl Owners {
    fn own(&self, key: Key) -> bool {
        self.0.contains(&beginning(key.id()))
    }
}

impl FromIterator<Uuid> for Owners {
    fn from_iter<I: IntoIterator<Item = Uuid>>(ids: I) -> Self {
        Self(ids.into_iter().map(beginning).collect())
    }
}

fn beginning(id: Uuid) -> u128 {
    id.as_u128() >> OWN_BITS
}

impl Media {
    /// All objects of these jobs and requests. Lists every object of the store.
    pub async fn objects_of(&self, owners: &Owners) -> Result<Vec<StoredObject>, MediaError> {
        let objects = match &self.inner.place {
            Place::Folder(folder, _) => folder.objects().await?,
            Place::Bucket(bucket) => bucket.objects().await?,
        };
        let owned = objects.into_iter().filter(|object| owners.own(object.key));
        Ok(owned.collect())
    }

    /// Returns the number of deleted objects.
    pub async fn delete_all_of(&self, owners: &Owners) -> Result<usize, MediaError> {
        let objects = self.objects_of(owners).await?;
        for object in &objects {
            self.delete(object.key).await?;
        }
        Ok(objects.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use uuid::Uuid;

    use super::Owners;
    use crate::media::{Area, Key, Links, Media, MediaSettings, MediaType};
    use muster_process::tasks::Tasks;

    #[tokio::test]
    async fn the_objects_of_a_job_are_found_by_what_its_workers_call_it() {
        let (tasks, folder) = (Tasks::default(), tempfile::tempdir().unwrap());
        let links = Links {
            secret: [1; 32],
            base: "http://muster.test".to_owned(),
        };
        let settings = MediaSettings::in_folder(folder.path().join("media"));
        let media = Media::open(&settings, &links, &tasks).await.unwrap();
        let (job, other) = (Uuid::from_u128(7 << 56), Uuid::from_u128(8 << 56));
        let called = Uuid::from_u128((7 << 56) | 0xab_cdef);
        let key = |area, id, number| Key::new(area, id, number, MediaType::Webp);
        let its = [
            key(Area::Results, job, 1),
            key(Area::Results, called, 1),
            key(Area::Sources, job, 0),
        ];
        let others = key(Area::Results, other, 1);
        for key in its.into_iter().chain([others]) {
            media.put(key, Bytes::from_static(b"RIFF")).await.unwrap();
        }
        let owners: Owners = [job].into_iter().collect();
        let found = media.objects_of(&owners).await.unwrap();
        assert!(found.iter().all(|object| object.bytes == 4));
        assert_eq!(media.delete_all_of(&owners).await.unwrap(), 3);
        for key in its {
            assert!(media.get(key).await.unwrap().is_none());
        }
        assert!(media.get(others).await.unwrap().is_some());
        assert_eq!(media.delete_all_of(&owners).await.unwrap(), 0);
        assert!(tasks.stop(Duration::from_secs(5)).await);
    }
}
