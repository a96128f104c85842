//! A strategy that is a [`Client`](super::handle::Client) and its options: the trait by delegation.
//!
//! By a macro: an implementation for every type that has a client would be public, and name a
//! private type.

/// Implements [`KeyedMutex`](crate::KeyedMutex) for a strategy by its client, a field, and a method
/// of its own.
macro_rules! delegate_keyed_mutex {
    ($strategy:ty, $client:ident $(, $more:item)?) => {
        #[async_trait::async_trait]
        impl $crate::KeyedMutex for $strategy {
            async fn lock(
                &self,
                key: &str,
                options: $crate::LockOptions,
            ) -> Result<$crate::Lock, $crate::Error> {
                self.$client.lock(key, &options).await
            }

            async fn unlock(&self, lock: &$crate::Lock) -> Result<(), $crate::Error> {
                self.$client.unlock(lock).await
            }

            async fn extend(
                &self,
                lock: &$crate::Lock,
                duration: std::time::Duration,
            ) -> Result<$crate::Lock, $crate::Error> {
                self.$client.extend(lock, duration).await
            }

            async fn inspect(
                &self,
                key: &str,
            ) -> Result<Option<$crate::Inspection>, $crate::Error> {
                self.$client.inspect(key).await
            }

            fn operator(&self) -> Option<&dyn $crate::Operator> {
                Some(&self.$client)
            }

            async fn ready(&self) -> Result<(), $crate::Error> {
                self.$client.ready().await
            }

            fn capabilities(&self) -> $crate::Capabilities {
                self.$client.profile.capabilities
            }

            async fn close(&self) {
                self.$client.close().await;
            }

            fn release(&self, lock: &$crate::Lock) {
                self.$client.release(lock);
            }

            fn watch(&self, lock: &$crate::Lock) -> $crate::implement::LossWatch {
                self.$client.watch(lock)
            }

            fn clock(&self) -> std::sync::Arc<dyn $crate::Clock> {
                self.$client.clock()
            }

            $($more)?
        }
    };
}

pub(crate) use delegate_keyed_mutex;
