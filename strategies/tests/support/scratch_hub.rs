use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::*;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::mpsc;
#[derive(Clone, Default)]
pub(crate) struct Hub2(Arc<Mutex<BTreeMap<NodeName, mpsc::UnboundedSender<Received>>>>);
pub(crate) struct Mem {
    name: NodeName,
    hub: Hub2,
    rx: Mutex<Option<Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Received>>>>>,
}
impl Hub2 {
    pub fn channel(&self, name: &NodeName) -> Arc<dyn Channel> {
        Arc::new(Mem { name: name.clone(), hub: self.clone(), rx: Mutex::new(None) })
    }
}
#[async_trait]
impl Channel for Mem {
    fn name(&self) -> &NodeName {
        &self.name
    }
    async fn connect(&self) -> Result<(), ChannelError> {
        let (tx, rx) = mpsc::unbounded_channel();
        self.hub.0.lock().unwrap().insert(self.name.clone(), tx);
        *self.rx.lock().unwrap() = Some(Arc::new(tokio::sync::Mutex::new(rx)));
        Ok(())
    }
    async fn disconnect(&self) {
        self.hub.0.lock().unwrap().remove(&self.name);
        *self.rx.lock().unwrap() = None;
    }
    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        if let Some(tx) = self.hub.0.lock().unwrap().get(to) {
            let _ = tx.send(Received::Frame { from: self.name.clone(), frame });
        }
        Ok(())
    }
    fn broadcast(&self, frame: Bytes) -> Result<(), ChannelError> {
        for tx in self.hub.0.lock().unwrap().values() {
            let _ = tx.send(Received::Frame { from: self.name.clone(), frame: frame.clone() });
        }
        Ok(())
    }
    async fn receive(&self) -> Option<Received> {
        let rx = self.rx.lock().unwrap().clone()?;
        let mut rx = rx.lock().await;
        rx.recv().await
    }
    fn try_receive(&self) -> Option<Received> {
        let rx = self.rx.lock().unwrap().clone()?;
        let mut rx = rx.try_lock().ok()?;
        rx.try_recv().ok()
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
}
