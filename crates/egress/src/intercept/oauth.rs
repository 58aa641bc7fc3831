//! Gets a token with client credentials (RFC 6749, sections 4.4 and 6).
//!
//!   name ─► host's resolvers ─► floor, policy ─► TLS ─► POST form ─► JSON of at most 64 KiB
//!
//! The address of the server was chosen by an account, so it is judged like one that a machine
//! connects to: the floor holds, and private addresses need a rule. Errors never have a value in
//! them, nor what the server answered.

use super::InterceptedConnection;
use crate::dns::{self, AddressKind};
use crate::resolvers;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, StatusCode, client};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use stasis_secrets::{ClientCredentials, SecretText};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use url::{Host, Url, form_urlencoded};
use zeroize::Zeroizing;

const LARGEST: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a token lasts that does not say.
const UNKNOWN: Duration = Duration::from_secs(300);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

pub struct IssuedToken {
    pub access: SecretText,
    pub refresh: Option<SecretText>,
    until: Instant,
}

impl IssuedToken {
    pub fn lasts(&self, buffer: Duration) -> bool {
        Instant::now() + buffer < self.until
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: SecretText,
    #[serde(default)]
    expires_in: Option<f64>,
    #[serde(default)]
    refresh_token: Option<SecretText>,
}

/// Gets a token, with a refresh token first if there is one.
pub async fn get(
    connection: &InterceptedConnection,
    client: &ClientCredentials,
    refresh: Option<SecretText>,
) -> Result<IssuedToken, String> {
    let url = client.check().map_err(|error| error.to_string())?;
    if let Some(refresh) = &refresh {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh.reveal())];
        if let Ok((StatusCode::OK, body)) = ask(connection, client, &url, &fields, true).await {
            return read(&body);
        }
    }
    let mut fields = vec![("grant_type", "client_credentials")];
    fields.extend(client.scope.as_deref().map(|scope| ("scope", scope)));
    // every server takes the client's secret in a header; some were told not to
    for in_header in [true, false] {
        let (status, body) = ask(connection, client, &url, &fields, in_header).await?;
        match status {
            StatusCode::OK => return read(&body),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED if in_header => {}
            status => return Err(format!("the server answered {}", status.as_u16())),
        }
    }
    Err("the server refused the client".to_owned())
}

fn read(body: &[u8]) -> Result<IssuedToken, String> {
    let answer: TokenAnswer =
        serde_json::from_slice(body).map_err(|_| "the server's answer has no token".to_owned())?;
    let said = answer.expires_in.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    let said = said.map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST.as_secs_f64())));
    let lasts = said.or_else(|| expiry(answer.access_token.reveal())).unwrap_or(UNKNOWN);
    let until = Instant::now() + lasts.min(LONGEST);
    Ok(IssuedToken { access: answer.access_token, refresh: answer.refresh_token, until })
}

/// How long a token of the form JWT lasts, if it is one.
fn expiry(token: &str) -> Option<Duration> {
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&payload).ok()?;
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(claims["exp"].as_u64()?.min(1 << 40));
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

/// The form that is sent, and the header that says who sends it.
fn form(
    client: &ClientCredentials,
    fields: &[(&str, &str)],
    in_header: bool,
) -> (Zeroizing<String>, Option<HeaderValue>) {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    let secret = client.client_secret.reveal();
    if !in_header {
        form.extend_pairs([("client_id", client.client_id.as_str()), ("client_secret", secret)]);
        return (Zeroizing::new(form.finish()), None);
    }
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = Zeroizing::new(format!("{}:{}", encode(&client.client_id), encode(secret)));
    let header = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut header = HeaderValue::from_str(&header).ok();
    header.iter_mut().for_each(|header| header.set_sensitive(true));
    (Zeroizing::new(form.finish()), header)
}

async fn ask(
    connection: &InterceptedConnection,
    client: &ClientCredentials,
    url: &Url,
    fields: &[(&str, &str)],
    in_header: bool,
) -> Result<(StatusCode, Zeroizing<Vec<u8>>), String> {
    let (body, header) = form(client, fields, in_header);
    let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let mut request =
        Request::post(path).header(HOST, authority).header(ACCEPT, "application/json");
    request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(header) = header {
        request = request.header(AUTHORIZATION, header);
    }
    let body = Full::new(Bytes::from(body.as_bytes().to_vec()));
    let request = request.body(body).map_err(|_| "token_url cannot be asked".to_owned())?;
    let stream = connect(connection, url).await?;
    let said = |error: hyper::Error| error.to_string();
    let (mut sender, driver) =
        client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    let answered = async {
        let answer = sender.send_request(request).await.map_err(said)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        let body = body.map_err(|_| "the server's answer is too long".to_owned())?;
        Ok((status, Zeroizing::new(body.to_bytes().to_vec())))
    };
    tokio::pin!(driver);
    tokio::pin!(answered);
    let mut driven = false;
    loop {
        tokio::select! {
            answer = &mut answered => return answer,
            _ = &mut driver, if !driven => driven = true,
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to a server that gives out tokens, as far as a machine might.
async fn connect(connection: &InterceptedConnection, url: &Url) -> Result<Box<dyn Stream>, String> {
    let port = url.port_or_known_default().ok_or("token_url has no port")?;
    let (name, addresses) = match url.host() {
        Some(Host::Domain(name)) => (Some(name), resolve(connection, name).await?),
        Some(Host::Ipv4(address)) => (None, vec![address]),
        _ => return Err("token_url has no IPv4 address".to_owned()),
    };
    let mut said = "the server has no address that may be reached".to_owned();
    for address in addresses {
        let to = SocketAddrV4::new(address, port);
        if let Err(reason) = connection.rules.may_ask_for_tokens(name, to) {
            said = reason;
            continue;
        }
        let connected = timeout(PATIENCE * 3, TcpStream::connect(SocketAddr::V4(to))).await;
        let Ok(Ok(stream)) = connected else {
            said = "the server cannot be connected to".to_owned();
            continue;
        };
        if url.scheme() == "http" {
            return Ok(Box::new(stream));
        }
        let host = name.map_or_else(|| address.to_string(), str::to_owned);
        let host = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(connection.machine.shared.roots.config.clone());
        let stream = connector.connect(host, stream).await;
        return match stream {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("the server's TLS is not accepted: {error}")),
        };
    }
    Err(said)
}

/// The addresses of a name, from the host's resolvers.
async fn resolve(connection: &InterceptedConnection, name: &str) -> Result<Vec<Ipv4Addr>, String> {
    let mut buffer = vec![0; 4096];
    for resolver in resolvers::read(&connection.machine.shared.resolv_conf) {
        let any: SocketAddr = match resolver {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let Ok(socket) = UdpSocket::bind(any).await else { continue };
        let id = dns::random_id();
        let asked = socket.connect(resolver).await.is_ok();
        if !asked || socket.send(&dns::ask(id, name, AddressKind::V4)).await.is_err() {
            continue;
        }
        let answer = timeout(PATIENCE, socket.recv(&mut buffer)).await;
        let Ok(Ok(len)) = answer else { continue };
        if let Some(found) = dns::answer(&buffer[..len], id, name, AddressKind::V4) {
            return Ok(found.addresses);
        }
    }
    Err("the server's name cannot be resolved".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ClientCredentials {
        ClientCredentials {
            token_url: "https://id.example/token".into(),
            client_id: "an app".into(),
            client_secret: SecretText::new("s3cr&t".into()).expect("a value"),
            scope: None,
            refresh_buffer_secs: 30,
        }
    }

    #[test]
    fn clients_say_who_they_are() {
        let fields = [("grant_type", "client_credentials")];
        let (body, header) = form(&client(), &fields, true);
        assert_eq!(*body, "grant_type=client_credentials");
        let header = header.expect("a header");
        let text = header.to_str().expect("text").strip_prefix("Basic ").expect("basic");
        assert_eq!(STANDARD.decode(text).expect("base64"), b"an+app:s3cr%26t");
        assert!(header.is_sensitive());
        let (body, header) = form(&client(), &fields, false);
        let all = "grant_type=client_credentials&client_id=an+app&client_secret=s3cr%26t";
        assert_eq!((body.as_str(), header), (all, None));
    }

    #[test]
    fn tokens_last_as_long_as_they_say() {
        let lasts = |body: &str| {
            let token = read(body.as_bytes()).expect("a token");
            [10, 100, 1000, 90_000].map(|seconds| token.lasts(Duration::from_secs(seconds)))
        };
        assert_eq!(lasts(r#"{"access_token":"a","expires_in":50}"#), [true, false, false, false]);
        assert_eq!(lasts(r#"{"access_token":"a"}"#), [true, true, false, false]);
        let never = r#"{"access_token":"a","expires_in":1e300}"#;
        assert_eq!(lasts(never), [true, true, true, false]);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("now");
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{}}}", now.as_secs() + 2000));
        let jwt = format!("{{\"access_token\":\"x.{claims}.y\"}}");
        assert_eq!(lasts(&jwt), [true, true, true, false]);
        for bad in ["", "{}", "{\"access_token\":5}", "{\"access_token\":\"a\\nb\"}"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
