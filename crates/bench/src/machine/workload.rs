//! The code that machines of each language are measured with.

use crate::metrics::{JAVASCRIPT_METRICS, MACHINE_METRICS, Metric};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchLanguage {
    #[default]
    Python,
    #[value(alias = "typescript")]
    Javascript,
}

const PANDAS: &str = "import pandas as pd, numpy as np\n\
    df = pd.DataFrame({'a': np.arange(1000) % 7, 'b': np.random.rand(1000)})\n\
    float(df.groupby('a').b.mean().sum())";

const ROWS: &str = "\
    const rows = Array.from({ length: 1000 }, (_, n) => ({ a: n % 7, b: Math.random() }));\n\
    const mean = (list) => list.reduce((sum, row) => sum + row.b, 0) / list.length;\n\
    Object.values(Object.groupBy(rows, (row) => row.a)).map(mean).reduce((a, b) => a + b)";

impl BenchLanguage {
    /// The template has the name of its language.
    pub fn template(self) -> &'static str {
        match self {
            BenchLanguage::Python => "python",
            BenchLanguage::Javascript => "javascript",
        }
    }

    pub fn metrics(self) -> &'static [Metric] {
        match self {
            BenchLanguage::Python => MACHINE_METRICS,
            BenchLanguage::Javascript => JAVASCRIPT_METRICS,
        }
    }

    /// The instruction that most machines run before they are measured.
    pub fn work(self) -> &'static str {
        match self {
            BenchLanguage::Python => PANDAS,
            BenchLanguage::Javascript => ROWS,
        }
    }

    /// An instruction that needs what the work left, and its value.
    pub fn after_work(self) -> (&'static str, &'static str) {
        match self {
            BenchLanguage::Python => ("len(df)", "1000"),
            BenchLanguage::Javascript => ("rows.length", "1000"),
        }
    }
}
