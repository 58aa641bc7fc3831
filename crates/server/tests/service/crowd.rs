//! Connections that show no token do not keep out those that do.

use crate::client::Client;
use crate::server::{fresh_data, start};
use stasis_server::{Listen, Options};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[test]
fn idle_connections_without_a_token_block_no_client() {
    let data = fresh_data("crowd");
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let options = Options { listen, max_connections: 64, ..Options::default() };
    let (bound, running) = start(&data, options);
    let token = std::fs::read_to_string(data.join("token")).expect("a token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    let nobody = |number: usize| {
        let mut stream = TcpStream::connect(client.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // some say nothing, some begin a head and never end it
        if number.is_multiple_of(2) {
            let _ = stream.write_all(b"GET /v1/whoami HTTP/1.1\r\nhost: localhost\r\nx: ");
        }
        stream
    };
    let mut crowd: Vec<TcpStream> = (0..200).map(nobody).collect();
    // longer than a decent client needs to show its token
    std::thread::sleep(Duration::from_secs(1));
    for round in 0..50 {
        crowd.push(nobody(round));
        assert_eq!(client.get("/v1/whoami").good()["account"], "root", "{round}");
    }
    let name = client.machine();
    assert_eq!(client.run(&name, "1")["value"], "1");
    // the crowd makes way: the first of it were closed
    let mut rest = Vec::new();
    let _ = crowd[0].read_to_end(&mut rest);
    drop(crowd);
    bound.stop.stop();
    running.join().expect("a thread").expect("a good end");
}
