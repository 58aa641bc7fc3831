//! A real client of HTTP/3 in a machine, which knows that its server has QUIC: QUIC is refused at
//! once, and the client goes on over TCP by itself.

use crate::World;
use crate::clients::{bench, define};
use crate::policies::reported;
use crate::web::TLS;
use stasis_testbed::value;

const CLIENT: &str = r"
import io, sys, tarfile, urllib.request
archive = urllib.request.urlopen('http://packages.example/python.tar', timeout=120).read()
tarfile.open(fileobj=io.BytesIO(archive)).extractall('/tmp/site')
sys.path.insert(0, '/tmp/site/python')
import niquests
def get(host, port=PORT):
    with niquests.Session() as session:
        session.quic_cache_layer[(host, port)] = ('', 443)
        answer = session.get(f'https://{host}:{port}/v1/ok', timeout=120)
        return f'{answer.status_code} {answer.text} {answer.http_version < 30}'
";

pub fn quic_clients_fall_back(world: &World) {
    let bench = bench(world);
    let machine = bench.machine("python");
    define(&machine, &CLIENT.replace("PORT", &TLS.to_string()));
    // one whose connections pass through, and one whose requests are read
    for host in ["pass.example", "api.example"] {
        assert_eq!(value(&machine, &format!("get('{host}')")), "'200 good day True'", "{host}");
        reported(&bench.host, &machine, &format!("udp {host}:443"), "QUIC hides its names", None);
    }
}
