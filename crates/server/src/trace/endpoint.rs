//! The collector's address: from our configuration, or from OpenTelemetry's variables.

use crate::error::Error;
use reqwest::Url;

const PATH: &str = "/v1/traces";
const SPOKEN: &str = "http/protobuf";

/// The address of the collector, if tracing is on. `variable` is the environment.
pub fn of_collector(
    endpoint: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, Error> {
    let is = |name: &str, word: &str| {
        variable(name).is_some_and(|text| text.trim().eq_ignore_ascii_case(word))
    };
    if is("OTEL_SDK_DISABLED", "true") {
        return Ok(None);
    }
    if let Some(endpoint) = endpoint {
        return below(endpoint).map(Some);
    }
    if is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(None);
    }
    let whole = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").map(|text| checked(&text));
    let base = || variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(|text| below(&text));
    let Some(place) = whole.or_else(base).transpose()? else { return Ok(None) };
    let own = variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
    let protocol = own.or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if let Some(other) = protocol.filter(|text| text.trim() != SPOKEN) {
        return Err(Error::Traces(format!("{SPOKEN} is spoken, not {other:?}")));
    }
    Ok(Some(place))
}

fn below(endpoint: &str) -> Result<String, Error> {
    Ok(format!("{}{PATH}", checked(endpoint)?.trim_end_matches('/')))
}

/// The message omits the address, which may contain a password.
fn checked(place: &str) -> Result<String, Error> {
    let wrong = |what: String| Error::Traces(format!("the collector's address: {what}"));
    let url = Url::parse(place.trim()).map_err(|error| wrong(error.to_string()))?;
    match (url.scheme(), url.host_str()) {
        ("http" | "https", Some(_)) => Ok(url.into()),
        (scheme, _) => Err(wrong(format!("it begins with http:// or https://, not {scheme}:"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(own: Option<&str>, said: &[(&str, &str)]) -> Result<Option<String>, Error> {
        of_collector(own, |name| {
            said.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        })
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/");
    const WHOLE: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://b/spans");

    #[test]
    fn what_says_most_counts() {
        let at = |own, said: &[_]| place(own, said).expect("a place or none");
        assert_eq!(at(None, &[]), None);
        assert_eq!(at(None, &[BASE]).as_deref(), Some("http://a:4318/v1/traces"));
        assert_eq!(at(None, &[BASE, WHOLE]).as_deref(), Some("https://b/spans"));
        let own = Some("http://c:1/otlp");
        assert_eq!(at(own, &[BASE, WHOLE]).as_deref(), Some("http://c:1/otlp/v1/traces"));
        let none = ("OTEL_TRACES_EXPORTER", "none");
        assert_eq!(at(None, &[BASE, none]), None);
        assert!(at(own, &[none]).is_some());
        assert_eq!(at(own, &[("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert!(at(None, &[BASE, ("OTEL_EXPORTER_OTLP_PROTOCOL", SPOKEN)]).is_some());
    }

    #[test]
    fn what_cannot_be_spoken_to_is_refused() {
        for own in ["a:4318", "grpc://a:4318", "http://", "/dev/null", ""] {
            assert!(place(Some(own), &[]).is_err(), "{own:?}");
        }
        assert!(place(None, &[BASE, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).is_err());
        let secret = place(Some("ftp://user:hunter2@a"), &[]).expect_err("no such protocol");
        assert!(!secret.to_string().contains("hunter2"), "{secret}");
    }
}
