//! The counters of `gaggle increment`, and their store.

use std::sync::Arc;

use super::{
    args::SetupArgs,
    store::{Address, Folder, Store},
};
use crate::failure::Failure;

/// The store of the counters for the time of one command.
pub(super) struct Counters {
    pub(super) address: Address,
    pub(super) store: Arc<Store>,
    /// Removed at the end.
    _folder: Option<Folder>,
}

impl Counters {
    pub(super) async fn open(args: &SetupArgs) -> Result<Self, Failure> {
        let has_folder = args.processes && args.redis.is_none();
        let folder = has_folder.then(Folder::new).transpose()?;
        let address = match (&args.redis, &folder) {
            (Some(redis), _) => Address::Redis(redis.server().to_owned()),
            (None, Some(folder)) => Address::Folder(folder.path().to_owned()),
            (None, None) => Address::Memory,
        };
        let store = Arc::new(Store::open(&address).await?);
        Ok(Self { address, store, _folder: folder })
    }

    /// The sum of the counters with these keys.
    pub(super) async fn sum(&self, keys: &[String]) -> Result<u64, Failure> {
        let mut sum = 0;
        for key in keys {
            sum += self.store.get(key).await?;
        }
        Ok(sum)
    }

    pub(super) async fn delete(&self, keys: &[String]) -> Result<(), Failure> {
        for key in keys {
            self.store.delete(key).await?;
        }
        Ok(())
    }
}
