//! Plans, without a kernel: what an image says is turned into steps, or refused.

use super::*;
use stasis_spawner::socket_plan::SocketStep;
use stasis_sys::libc;

fn socket(family: i32, kind: i32, state: SocketState) -> Object {
    let socket = Socket {
        family,
        kind,
        protocol: if family == libc::AF_UNIX { 0 } else { libc::IPPROTO_TCP },
        uid: 0,
        gid: 0,
        local: Vec::new(),
        node: None,
        peer_credentials: PeerId { pid: 5, uid: 0, gid: 0 },
        options: Vec::new(),
        state,
        shutdown: 0,
        queue: Vec::new(),
    };
    Object { flags: 0, owner: None, kind: ObjectKind::Socket(Box::new(socket)) }
}

fn stream(state: SocketState) -> Object {
    socket(libc::AF_UNIX, libc::SOCK_STREAM, state)
}

fn own(object: &mut Object) -> &mut Socket {
    match &mut object.kind {
        ObjectKind::Socket(socket) => socket,
        other => panic!("{other:?} is no socket"),
    }
}

fn steps(objects: &[Object]) -> Vec<SocketStep> {
    plan_for(objects).unwrap().steps.into_iter().map(|step| step.what).collect()
}

#[test]
fn a_pair_is_made_by_whoever_made_it() {
    let mut objects =
        [stream(SocketState::Connected { peer: 1 }), stream(SocketState::Connected { peer: 0 })];
    own(&mut objects[1]).queue = vec![SocketMessage { data: vec![7], ..Default::default() }];
    let plan = plan_for(&objects).unwrap();
    assert_eq!(plan.keep, [0, 1]);
    let first = &plan.steps[0];
    assert_eq!(first.what, SocketStep::Pair { slots: [0, 1], kind: libc::SOCK_STREAM });
    assert_eq!(first.who.map(|who| who.pid), Some(5));
    let sent = SocketStep::Send { slot: 0, data: vec![7] };
    assert!(plan.steps.iter().any(|step| step.what == sent));
}

#[test]
fn peers_that_are_none_are_refused() {
    for objects in [
        vec![stream(SocketState::Connected { peer: 9 })],
        vec![stream(SocketState::Connected { peer: 1 }), stream(SocketState::Unconnected)],
        vec![
            stream(SocketState::Connected { peer: 1 }),
            socket(libc::AF_UNIX, libc::SOCK_DGRAM, SocketState::Connected { peer: 0 }),
        ],
        vec![socket(libc::AF_INET, libc::SOCK_STREAM, SocketState::Connected { peer: 0 })],
        vec![socket(libc::AF_INET, libc::SOCK_DGRAM, SocketState::Ended(Ending::Reset))],
    ] {
        assert!(matches!(plan_for(&objects), Err(Error::Unfit(_))), "{objects:?}");
    }
}

#[test]
fn an_accepted_socket_frees_its_name_before_the_listener_needs_it() {
    let listening = SocketState::Listening { backlog: 5, waiting: Vec::new() };
    let mut objects = [
        stream(listening),
        stream(SocketState::Connected { peer: 2 }),
        stream(SocketState::Connected { peer: 1 }),
    ];
    for index in [0, 2] {
        own(&mut objects[index]).local = b"\x01\x00\x00name".to_vec();
    }
    let steps = steps(&objects);
    let place = |wanted: &dyn Fn(&SocketStep) -> bool| steps.iter().position(wanted).unwrap();
    let accepted = place(&|step| matches!(step, SocketStep::Accept { slot: 2, .. }));
    let closed = place(&|step| matches!(step, SocketStep::Close { .. }));
    let bound = place(&|step| matches!(step, SocketStep::Bind { slot: 0, .. }));
    assert!(accepted < closed && closed < bound);
}

#[test]
fn a_client_waits_only_where_it_says_it_does() {
    let waiting = vec![PendingConnection {
        client: Some(1),
        connector: PeerId::default(),
        sent: vec![SocketMessage { data: b"hello".to_vec(), ..Default::default() }],
    }];
    let listening = SocketState::Listening { backlog: 5, waiting };
    let fine = [stream(listening.clone()), stream(SocketState::Waiting { listener: 0 })];
    assert!(steps(&fine).contains(&SocketStep::ConnectTo { slot: 1, to: 0 }));
    let wrong = [stream(listening), stream(SocketState::Unconnected)];
    assert!(matches!(plan_for(&wrong), Err(Error::Unfit(_))));
}

#[test]
fn a_lost_connection_is_reset() {
    let objects = [socket(libc::AF_INET, libc::SOCK_STREAM, SocketState::Ended(Ending::Reset))];
    let lingers =
        |step: &SocketStep| matches!(step, SocketStep::Option { name: libc::SO_LINGER, .. });
    assert!(steps(&objects).iter().any(lingers));
    let objects = [socket(libc::AF_INET, libc::SOCK_STREAM, SocketState::Ended(Ending::Finished))];
    assert!(!steps(&objects).iter().any(lingers));
}
