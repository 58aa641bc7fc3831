//! A service for all tests of this program, on a copy of a data directory that is made once.

use crate::client::Client;
use stasis_machine::Host;
use stasis_server::{BoundAddresses, Listen, Options, serve};
use stasis_template::{NoProgress, Recipe};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

/// Python and nothing else: quick to build.
const RECIPE: &str = "name = \"python\"\nbase = \"host\"\n\
                      [env]\nRECIPE_SECRET = \"only-for-builders\"\n";

pub struct Server {
    pub address: SocketAddr,
    /// Where forkd's routes are alone.
    pub forkd: SocketAddr,
    pub token: String,
    pub data: PathBuf,
}

/// The one that tests share.
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let data = fresh_data("shared");
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listen = vec![Listen::Tcp(loopback)];
        let allowed_origins = vec!["https://app.example".to_owned()];
        let forkd = Some(loopback);
        let options = Options { listen, forkd, allowed_origins, ..Options::default() };
        let (bound, _) = start(&data, options);
        let token = std::fs::read_to_string(data.join("token")).expect("the first token");
        let address = bound.tcp().expect("an address");
        let Some(Listen::Tcp(forkd)) = bound.forkd else { panic!("an address for forkd") };
        Server { address, forkd, token: token.trim().to_owned(), data }
    })
}

/// A client of the shared service, with the first token.
pub fn root() -> Client {
    let server = shared();
    Client::new(server.address, &server.token)
}

pub type Running = JoinHandle<Result<(), stasis_server::Error>>;

/// Starts a service and waits until it takes connections.
pub fn start(data: &Path, options: Options) -> (BoundAddresses, Running) {
    serve_on(Arc::new(stasis_testbed::open(data)), options)
}

pub fn serve_on(host: Arc<Host>, options: Options) -> (BoundAddresses, Running) {
    let (tell, told) = mpsc::channel();
    let running = std::thread::spawn(move || {
        serve(host, options, move |bound| tell.send(bound.clone()).expect("somebody waits"))
    });
    (told.recv().expect("the service starts"), running)
}

/// A data directory with a template, of this test's own.
pub fn fresh_data(name: &str) -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let data = tmp.join(format!("service-{name}-{}", std::process::id()));
    shell(&format!(
        "rm -rf {0} && mkdir -p {0}/content && \
         cp -al {1}/content/images {1}/content/packs {0}/content/ && ln -s {1}/roots {0}/roots && \
         cp {1}/records.db* {0}/",
        data.display(),
        seed().display()
    ));
    data
}

/// Made once and kept; the template is built again only when its recipe or the agent changed.
fn seed() -> &'static Path {
    static SEED: OnceLock<PathBuf> = OnceLock::new();
    SEED.get_or_init(|| {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // what earlier runs left behind
        shell(&format!("rm -rf {}/service-*", tmp.display()));
        let seed = tmp.join("seed-of-service");
        let recipe = Recipe::parse(RECIPE).expect("a recipe");
        let host = stasis_testbed::open(&seed);
        host.build_template(&recipe, &NoProgress).expect("a template");
        assert!(host.close().is_empty());
        seed
    })
}

fn shell(line: &str) {
    let done = Command::new("sh").args(["-c", line]).status().expect("a shell");
    assert!(done.success(), "{line}");
}
