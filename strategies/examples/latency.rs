use std::{sync::Arc, time::{Duration, Instant}};
use gaggle_channels::{Channel, Hub, NodeName};
use gaggle_strategies::*;
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let hub = Hub::new();
    let names: Vec<NodeName> = ["a", "b", "c"].iter().map(|n| NodeName::new(n).unwrap()).collect();
    let mut members = Vec::new();
    let t = Instant::now();
    for name in &names {
        let channel: Arc<dyn Channel> = Arc::new(hub.channel(name.clone()));
        members.push(Arc::new(Gaggle::open(channel, MemberOptions::named("t", names.clone())).await.unwrap()));
    }
    for m in &members { m.ready().await.unwrap(); }
    println!("ready in {:?}", t.elapsed());
    let leader = members[0].leader().unwrap();
    println!("leader {leader}");
    for (i, m) in members.iter().enumerate() {
        let mut v = Vec::new();
        let t = Instant::now();
        for _ in 0..20000 {
            let t = Instant::now();
            let l = m.lock("k", LockOptions::default()).await.unwrap();
            v.push(t.elapsed());
            m.unlock(&l).await.unwrap();
        }
        v.sort();
        println!("{} p50 {:?} p99 {:?} pairs/s {:.0}", names[i], v[10000], v[19800], 20000.0 / t.elapsed().as_secs_f64());
    }
    let t = Instant::now();
    let mut tasks = vec![];
    for i in 0..64 { let m = members[i % 3].clone(); tasks.push(tokio::spawn(async move { for _ in 0..2000 { let l = m.lock(&format!("k{i}"), LockOptions::default()).await.unwrap(); m.unlock(&l).await.unwrap(); } })); }
    for t in tasks { t.await.unwrap(); }
    println!("fan64 {:.0}/s", 128000.0 / t.elapsed().as_secs_f64());
    println!("{:?}", members[0].sizes().await);
    tokio::time::sleep(Duration::from_millis(1)).await;
}
