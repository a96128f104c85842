//! Every limit of a member's options, on it and one beyond.

use gaggle_channels::FRAME_BYTES_MAX;

use super::*;
use crate::{
    limits::HOST_BYTES_MAX,
    member::wire::{
        self, Body, Forming, Header, MembershipState, Presence, Process, Times, VERSION,
    },
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn node(number: usize) -> NodeName {
    NodeName::new(format!("m{number:02}")).unwrap()
}

fn abc() -> MemberOptions {
    MemberOptions::named("test", (0..3).map(node))
}

/// The field that is refused, for the member of the first name.
fn refused(options: &MemberOptions) -> Option<&'static str> {
    refused_on(options, FRAME_BYTES_MAX)
}

/// The same over a channel with this limit of a frame.
fn refused_on(options: &MemberOptions, frame_limit: usize) -> Option<&'static str> {
    match options.validate(&node(0), frame_limit) {
        Ok(()) => None,
        Err(Error::InvalidOptions { field, .. }) => Some(field),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn cluster_has_a_name_and_1_to_31_members() {
    let cluster = |name: String| refused(&MemberOptions::named(name, [node(0)]));
    assert_eq!(cluster("c".repeat(CLUSTER_NAME_BYTES_MAX)), None);
    assert_eq!(cluster("c".repeat(CLUSTER_NAME_BYTES_MAX + 1)), Some("cluster"));
    assert_eq!(cluster(String::new()), Some("cluster"));
    let named = |count| refused(&MemberOptions::named("test", (0..count).map(node)));
    assert_eq!((named(0), named(1)), (Some("members"), None));
    assert_eq!((named(MEMBERS_MAX), named(MEMBERS_MAX + 1)), (None, Some("members")));
    assert_eq!(refused(&MemberOptions::named("test", [node(1)])), Some("name"));
}

/// The longest invitation that can be: it would be dropped, and the group never form.
#[test]
fn an_invitation_fits_into_a_frame() {
    let id = u64::MAX;
    for names in [vec![128; 30], vec![127, 128, 9], vec![4; 30]] {
        let names =
            names.iter().enumerate().map(|(n, bytes)| format!("m{n:02}{:-<1$}", "", bytes - 3));
        let members = names.map(|name| (name, id)).collect::<Vec<_>>();
        let named = members.iter().map(|(name, _)| NodeName::new(name.clone()).unwrap());
        let options =
            MemberOptions::named("c".repeat(CLUSTER_NAME_BYTES_MAX), named.chain([node(0)]));
        let bounds = TableConfig {
            group: u128::MAX,
            first_token: id,
            nonce_memory_ms: id,
            waiters_per_key_max: id,
            keys_max: id,
            nonces_max: id,
            outside_max_ms: id,
        };
        let cluster = options.cluster.clone();
        let header = Header {
            version: VERSION,
            cluster: cluster.into(),
            from: id,
            to: id,
            group: u128::MAX,
        };
        let mut frame = wire::encode(&header);
        let forming = Forming { id: u128::MAX, members, table: bounds };
        frame.extend(wire::encode(&Body::Invite(forming.clone())));
        let least =
            (frame.len()..6000).find(|limit| refused_on(&options, *limit).is_none()).unwrap();
        assert_eq!(least, invitation_bytes(&options.members), "it may fill the frame");
        assert!(least > frame.len() && least < frame.len() + 160, "{least} for {}", frame.len());
        let host = "h".repeat(HOST_BYTES_MAX);
        let process = Process { id, started: id, host, pid: u32::MAX };
        let members = forming.members.iter().map(|(name, _)| name.clone()).collect();
        let (membership_state, seq, last_token, challenge, echo) =
            (MembershipState::Member(u128::MAX), id, id, id, id);
        let longest = Duration::from_secs(u64::MAX);
        let times = Times { heartbeat: longest, election_timeout: (longest, longest) };
        let presence = Presence {
            seq,
            membership_state,
            last_token,
            challenge,
            echo,
            process,
            members,
            times,
        };
        let frame = [wire::encode(&header), wire::encode(&Body::Presence(presence))].concat();
        assert!(frame.len() <= least.max(4096), "{} bytes", frame.len());
    }
    // The least that a channel may carry.
    assert_eq!(refused_on(&MemberOptions::named("test", (0..31).map(node)), 4096), None);
}

#[test]
fn a_heartbeat_takes_5_ms_to_1_s() {
    let heartbeat = |heartbeat: Duration| {
        refused(&abc().heartbeat(heartbeat).election_timeout(heartbeat * 3, heartbeat * 4))
    };
    assert_eq!((heartbeat(ms(4)), heartbeat(ms(5))), (Some("heartbeat"), None));
    assert_eq!((heartbeat(ms(1_000)), heartbeat(ms(1_001))), (None, Some("heartbeat")));
}

#[test]
fn election_timeout_has_minimum_and_spread() {
    let election = |min, max| refused(&abc().heartbeat(ms(50)).election_timeout(ms(min), ms(max)));
    assert_eq!(election(150, 200), None);
    assert_eq!(election(149, 300), Some("election_timeout"));
    assert_eq!(election(150, 199), Some("election_timeout"));
}

#[test]
fn heartbeat_alone_is_named_if_it_is_too_long() {
    let heartbeat = |heartbeat| refused(&abc().heartbeat(ms(heartbeat)));
    assert_eq!((heartbeat(50), heartbeat(51)), (None, Some("heartbeat")));
}

#[test]
fn remaining_options_have_limits() {
    let outside = |lease| refused(&abc().outside_max(lease));
    assert_eq!((outside(ms(1)), outside(DURATION_MAX)), (None, None));
    assert_eq!(outside(Duration::from_micros(999)), Some("outside_max"));
    assert_eq!(outside(DURATION_MAX + ms(1)), Some("outside_max"));
    let timeout = |timeout| refused(&abc().request_timeout(timeout));
    assert_eq!((timeout(ms(1)), timeout(Duration::ZERO)), (None, Some("request_timeout")));
    assert_eq!((timeout(ms(3_600_000)), timeout(ms(3_600_001))), (None, Some("request_timeout")));
}

#[test]
fn tick_is_a_fifth_of_a_heartbeat() {
    let options = abc().heartbeat(ms(50)).election_timeout(ms(150), ms(301));
    let timing = options.outside_max(ms(700)).timing(4000, &RunOptions::new(1));
    assert_eq!(timing.tick, ms(10));
    assert_eq!(timing.election_ticks, (15, 31), "rounded up");
    assert_eq!((timing.table.outside_max_ms, timing.append_bytes_max), (700, 1000));
    assert_eq!(abc().timing(4000, &RunOptions::new(1)).table.outside_max_ms, 0);
}

#[test]
fn waiter_ttl_is_at_least_four_heartbeats() {
    let silence = |heartbeat, ttl| {
        abc()
            .heartbeat(ms(heartbeat))
            .waiter_ttl(ms(ttl))
            .timing(4000, &RunOptions::new(1))
            .waiter_ttl
    };
    assert_eq!(silence(50, 3_000), ms(3_000));
    assert_eq!(silence(50, 100), ms(200));
    assert_eq!(silence(1_000, 3_000), ms(4_000));
}

#[test]
fn busy_polling_is_limited_to_a_millisecond() {
    let polls = |micros| refused(&abc().busy_poll(Duration::from_micros(micros)));
    assert_eq!((polls(0), polls(1_000), polls(1_001)), (None, None, Some("busy_poll")));
}
