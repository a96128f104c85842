//! A round: every workload through everything that is in this process.

use std::sync::Arc;

use gaggle::{Locker, strategies::Local};
use gaggle_fixtures::RedisServer;
use gaggle_workloads::{self as workloads, Bare, Contender, NoLock, Workload};

use crate::{
    apart, bounds,
    cluster::{Cluster, Over, handles, member_urls},
    contenders::{
        BareRedis, BoxError, EtcdSession, Mutexes, PostgresSession, Rslock, Token, excluding,
    },
    data::Data,
    ours,
    servers::{Etcd, Postgres, Serve},
    settings::Settings,
    targets::{BARE, ETCD, HTTP, SCRIPTS, TOKEN},
};

const ALL: &[&str] = &["uncontended", "fan", "handoff", "busy"];
const GAGGLE1: &[&str] = &["gaggle1-contended", "gaggle1-uncontended"];
const ON_REDIS: &[&str] = &[
    BARE,
    SCRIPTS,
    TOKEN,
    "Redis",
    "rslock",
    ours::REDIS_PROCESSES,
    apart::TOKEN,
    "Gaggle, Redis",
    "Raft, Redis",
];
const MEMBERS: u32 = 5;
/// As many as the widest workload has tasks.
const SESSIONS: usize = 64;
/// The nodes of etcd, and of a lock service.
const NODES: usize = 3;
/// Tasks of the contended workloads.
const EIGHT: u32 = 8;

pub(crate) async fn round(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    let mut round = Round { settings, data };
    round.in_process().await?;
    if settings.wants(ON_REDIS, &[ALL, GAGGLE1].concat()) {
        round.on_redis().await?;
    }
    if settings.wants(&["PostgreSQL", apart::POSTGRES], ALL) {
        round.on_postgres().await?;
    }
    if settings.wants(&[ETCD], ALL) {
        round.on_etcd().await?;
    }
    if settings.wants(&[HTTP], ALL) {
        round.on_http().await?;
    }
    round.members().await?;
    if settings.wants(&[ours::PROCESSES], ALL) {
        // Next to what it bounds: it changes most with how awake the cores are.
        bounds::all(settings, round.data).await?;
        ours::processes(settings, round.data).await?;
    }
    Ok(())
}

struct Round<'a> {
    settings: &'a Settings,
    data: &'a mut Data,
}

impl Round<'_> {
    async fn cases<C: Contender>(
        &mut self,
        lock: &str,
        ours: bool,
        contenders: &[Arc<C>],
        names: &[&'static str],
    ) -> Result<(), BoxError> {
        for name in names.iter().copied() {
            if !self.settings.wants(&[lock], &[name]) {
                continue;
            }
            let workload = self.workload(name);
            let figures =
                workloads::run(contenders, &workload, &format!("competitors/{name}")).await?;
            let figures = excluding(figures).map_err(|error| format!("{lock}: {error}"))?;
            self.data.note(name, lock, ours, figures);
        }
        Ok(())
    }

    fn workload(&self, name: &str) -> Workload {
        let settings = self.settings;
        match name {
            "uncontended" => settings.of(Workload::uncontended()),
            "fan" => settings.of(Workload::fan(64)),
            "handoff" => settings.of(Workload::handoff(EIGHT)),
            "busy" => settings.of(Workload::busy(EIGHT)),
            "gaggle1-contended" => settings.gaggle1(Workload::gaggle1_contended(MEMBERS)),
            "gaggle1-uncontended" => settings.gaggle1(Workload::gaggle1_uncontended(MEMBERS)),
            _ => unreachable!("these are all"),
        }
    }

    async fn in_process(&mut self) -> Result<(), BoxError> {
        if self.settings.wants(&["sequential"], GAGGLE1) {
            let sequential =
                Workload::gaggle1_contended(1).each(self.settings.increments * MEMBERS);
            let figures = workloads::run(&[Arc::new(NoLock)], &sequential, "").await?;
            self.data.note("gaggle1-contended", "sequential", false, figures);
        }
        let names = ALL;
        self.cases("DashMap of mutexes", false, &[Arc::new(Mutexes::default())], names).await?;
        let local = || Arc::new(Local::new());
        self.cases("Local", true, &[Arc::new(Bare(local()))], names).await?;
        let guards = Arc::new(Locker::from_arc(local()));
        self.cases("Local, with guards", true, &[guards], names).await?;
        self.cases("Local", true, &[Arc::new(Bare(local()))], GAGGLE1).await
    }

    async fn on_redis(&mut self) -> Result<(), BoxError> {
        let server = RedisServer::start();
        let url = server.url();
        let (mut bare, mut scripts, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..MEMBERS {
            bare.push(Arc::new(BareRedis::open(&url).await?));
            scripts.push(Arc::new(BareRedis::with_tokens(&url).await?));
        }
        for (lock, contenders) in [(BARE, bare), (SCRIPTS, scripts)] {
            self.cases(lock, false, &contenders[..1], &["uncontended", "fan"]).await?;
            self.cases(lock, false, &contenders, &["gaggle1-uncontended"]).await?;
        }
        for _ in 0..EIGHT {
            tokens.push(Arc::new(Token::open(&url).await?));
        }
        self.cases(TOKEN, false, &tokens, &["handoff", "busy"]).await?;
        let handles = handles(&[url.clone()], MEMBERS as usize).await;
        self.cases("Redis", true, &handles[..1], ALL).await?;
        self.cases("Redis", true, &handles, GAGGLE1).await?;
        for handle in handles {
            handle.0.close().await;
        }
        let rslock = [Arc::new(Rslock::new(&url))];
        self.cases("rslock", false, &rslock, ALL).await?;
        if self.settings.wants(&[ours::REDIS_PROCESSES], &["handoff"]) {
            ours::redis_processes(self.settings, self.data, &url).await?;
        }
        apart::handoff(self.settings, self.data, apart::TOKEN, &url)?;
        self.over(Over::Redis(&url)).await
    }

    async fn on_postgres(&mut self) -> Result<(), BoxError> {
        let server = Postgres::start().await?;
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(Arc::new(PostgresSession::open(&server.url).await?));
        }
        self.cases("PostgreSQL", false, &sessions, ALL).await?;
        apart::handoff(self.settings, self.data, apart::POSTGRES, &server.url)
    }

    /// Connects as many clients as to etcd, to the nodes in turn.
    async fn on_http(&mut self) -> Result<(), BoxError> {
        let members = member_urls("gaggle", NODES, Over::Tcp);
        let server = Serve::start(&self.settings.gaggle, &members).await?;
        let clients = handles(&server.urls, SESSIONS).await;
        self.cases(HTTP, true, &clients, ALL).await?;
        for client in clients {
            client.0.close().await;
        }
        Ok(())
    }

    async fn on_etcd(&mut self) -> Result<(), BoxError> {
        let server = Etcd::start(NODES).await?;
        let mut sessions = Vec::new();
        for session in 0..SESSIONS {
            let endpoint = &server.endpoints[session % NODES];
            sessions.push(Arc::new(EtcdSession::open(endpoint).await?));
        }
        self.cases(ETCD, false, &sessions, ALL).await
    }

    async fn members(&mut self) -> Result<(), BoxError> {
        self.over(Over::Memory).await?;
        self.over(Over::Tcp).await
    }

    /// The cases of the Gaggle 1.x benchmark by five members over one channel.
    async fn over(&mut self, over: Over<'_>) -> Result<(), BoxError> {
        let channel = match over {
            Over::Memory => "Memory",
            Over::Tcp => "TCP",
            Over::Redis(_) => "Redis",
        };
        for (name, strategy) in [("Gaggle", "gaggle"), ("Raft", "raft")] {
            let lock = format!("{name}, {channel}");
            if self.settings.wants(&[&lock], GAGGLE1) {
                let cluster = Cluster::open(strategy, MEMBERS as usize, over).await;
                self.cases(&lock, true, &cluster.members, GAGGLE1).await?;
                cluster.close().await;
            }
        }
        Ok(())
    }
}
