//! Progress of building a run's template: a line for each step.

pub struct Talk;

impl stasis_template::Progress for Talk {
    fn step(&self, name: &str, done: u64, _: Option<u64>) {
        if done == 0 {
            eprintln!("building the template: {name} ...");
        }
    }

    fn say(&self, _: &str) {}
}
