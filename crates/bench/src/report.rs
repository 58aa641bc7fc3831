//! The measurements, as one JSON object or as a table.

use super::host::HostInfo;
use super::metrics::Metric;
use super::samples::Samples;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Fewer runs than this are not a measurement to quote.
pub const ENOUGH_RUNS: usize = 20;

/// Samples by key. A key with a reason instead could not be measured here.
#[derive(Debug, Default)]
pub struct Results(BTreeMap<&'static str, Result<Samples, String>>);

impl Results {
    pub fn add(&mut self, key: &'static str, samples: impl Into<Samples>) {
        self.0.insert(key, Ok(samples.into()));
    }

    pub fn absent(&mut self, key: &'static str, why: String) {
        self.0.insert(key, Err(why));
    }

    pub fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|key, _| wanted(key));
    }

    fn p50(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_ref().ok()?.p50()
    }
}

pub struct BenchReport {
    pub metrics: &'static [Metric],
    pub runs: usize,
    pub host: HostInfo,
    pub results: Results,
}

#[derive(Serialize)]
struct Row {
    p50: f64,
    p95: f64,
    min: f64,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bar: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

impl Row {
    fn of(metric: &Metric, samples: &Samples) -> Option<Row> {
        let p50 = samples.p50()?;
        Some(Row {
            p50: rounded(p50),
            p95: rounded(samples.p95()?),
            min: rounded(samples.min()?),
            runs: samples.count(),
            bar: metric.bar,
            met: metric.bar.map(|bar| match metric.more_is_better {
                true => p50 >= bar,
                false => p50 <= bar,
            }),
        })
    }
}

impl BenchReport {
    /// Keys whose median is on the wrong side of their bar.
    pub fn missed(&self) -> Vec<&'static str> {
        self.rows()
            .filter(|(_, row)| row.met == Some(false))
            .map(|(metric, _)| metric.key)
            .collect()
    }

    fn rows(&self) -> impl Iterator<Item = (&'static Metric, Row)> {
        self.metrics.iter().filter_map(|metric| {
            let samples = self.results.0.get(metric.key)?.as_ref().ok()?;
            Some((metric, Row::of(metric, samples)?))
        })
    }

    fn absences(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.metrics.iter().filter_map(|metric| {
            let why = self.results.0.get(metric.key)?.as_ref().err()?;
            Some((metric.key, why.as_str()))
        })
    }

    /// Keys reported as multiples: the key, its reference, and the factor.
    fn ratios(&self) -> Vec<(&'static str, &'static str, f64)> {
        let ratio = |metric: &Metric| {
            let of = metric.multiple_of?;
            let times = self.results.p50(metric.key)? / self.results.p50(of)?;
            Some((metric.key, of, rounded(times)))
        };
        self.metrics.iter().filter_map(ratio).collect()
    }

    fn note(&self) -> Option<String> {
        let debug = (self.host.build == "debug").then(|| "a debug build is slower".to_owned());
        let few = (self.runs < ENOUGH_RUNS)
            .then(|| format!("quick: {} runs, not the {ENOUGH_RUNS} a figure needs", self.runs));
        let busy = self
            .host
            .was_busy()
            .then(|| format!("other work was running (load {:.1} before)", self.host.load_before));
        let notes: Vec<String> = [few, debug, busy].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has only strings and numbers")
    }

    pub fn table(&self) -> String {
        let mut out =
            format!("{:<27}{:>10}{:>10}{:>8}  {:<8}what\n", "key", "p50", "p95", "bar", "verdict");
        for (metric, row) in self.rows() {
            let bar = row.bar.map_or(String::new(), |bar| bar.to_string());
            let verdict = match row.met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            let _ = writeln!(
                out,
                "{:<27}{:>10.2}{:>10.2}{bar:>8}  {verdict:<8}{}",
                metric.key, row.p50, row.p95, metric.is
            );
        }
        for (key, why) in self.absences() {
            let _ = writeln!(out, "{key:<27}{:>10}{:>28}{why}", "-", "");
        }
        for (key, of, times) in self.ratios() {
            let _ = writeln!(out, "{key} is {times:.1} times {of}");
        }
        let host = &self.host;
        let _ = writeln!(
            out,
            "\nLinux {}, {} cpus ({}), {} MiB, {}; {} runs, {} build",
            host.kernel,
            host.cpus,
            host.cpu,
            host.memory_mib,
            host.file_system,
            self.runs,
            host.build
        );
        if let Some(note) = self.note() {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }
}

impl Serialize for BenchReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (metric, row) in self.rows() {
            map.serialize_entry(metric.key, &row)?;
        }
        for (key, _) in self.absences() {
            map.serialize_entry(key, &())?;
        }
        map.serialize_entry("absent", &self.absences().collect::<BTreeMap<_, _>>())?;
        let ratios = self.ratios().into_iter().map(|(key, _, times)| (key, times));
        map.serialize_entry("ratios", &ratios.collect::<BTreeMap<_, _>>())?;
        map.serialize_entry("missed", &self.missed())?;
        map.serialize_entry("runs", &self.runs)?;
        map.serialize_entry("quick", &(self.runs < ENOUGH_RUNS))?;
        map.serialize_entry("note", &self.note())?;
        map.serialize_entry("version", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("host", &self.host)?;
        map.end()
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{MetricGroup, extra};

    const KEYS: &[Metric] = &[
        Metric { bar: Some(5.0), ..extra("restore_ms", MetricGroup::Restore, "ours") },
        Metric { bar: Some(40.0), ..extra("diff_ms", MetricGroup::Diff, "another") },
        Metric {
            multiple_of: Some("restore_ms"),
            ..extra("criu_restore_ms", MetricGroup::Yardstick, "theirs")
        },
        extra("gvisor_restore_ms", MetricGroup::Yardstick, "not there"),
    ];

    fn report() -> BenchReport {
        let mut results = Results::default();
        results.add("restore_ms", 8.0);
        results.add("diff_ms", 12.3456789);
        results.add("criu_restore_ms", 80.0);
        results.absent("gvisor_restore_ms", "runsc: not installed".into());
        BenchReport {
            metrics: KEYS,
            runs: 5,
            host: HostInfo::look(std::path::Path::new("/")),
            results,
        }
    }

    #[test]
    fn json_has_every_key_and_null_for_what_is_absent() {
        let json: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(json["restore_ms"]["p50"], 8.0);
        assert_eq!(json["restore_ms"]["met"], false);
        assert_eq!(json["diff_ms"]["p95"], 12.346);
        assert_eq!(json["diff_ms"]["met"], true);
        assert!(json["criu_restore_ms"].get("met").is_none());
        assert!(json.as_object().unwrap().contains_key("gvisor_restore_ms"));
        assert!(json["gvisor_restore_ms"].is_null());
        assert_eq!(json["absent"]["gvisor_restore_ms"], "runsc: not installed");
        assert_eq!(json["ratios"]["criu_restore_ms"], 10.0);
        assert_eq!(json["missed"], serde_json::json!(["restore_ms"]));
        assert_eq!(json["quick"], true);
    }

    #[test]
    fn table_gives_a_verdict_and_says_when_runs_were_few() {
        let table = report().table();
        let row = |key: &str| table.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
        assert!(row("restore_ms").contains("MISSED"));
        assert!(row("diff_ms").contains("met"));
        assert!(row("gvisor_restore_ms").contains("not installed"));
        assert!(row("note: ").starts_with("note: quick: 5 runs, not the 20 a figure needs"));
    }
}
