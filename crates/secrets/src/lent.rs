//! Values of headers that a surface lends to its machines (`--fetch-header`): not on record, sealed
//! in memory, and opened for one request like every secret.

use crate::book::SecretBook;
use crate::error::SecretError;
use crate::header_rule::HeaderRule;
use crate::key::SealedText;
use crate::value::SecretContent;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};

/// Values by the rule and the header that they are for.
type LentSet = BTreeMap<(usize, String), SealedText>;

/// Sets of rules, by the policy that they come with.
#[derive(Debug, Default)]
pub(crate) struct LentHeaders(RwLock<HashMap<String, LentSet>>);

/// The name that a value is sealed under. No secret of an account can have it.
fn name(policy: &str, rule: usize, header: &str) -> String {
    format!("{policy}/{rule}/{header}")
}

impl SecretBook {
    /// Lends the values of rules to the machines under a policy.
    pub fn lend_headers(&self, policy: &str, rules: &[HeaderRule]) -> Result<(), SecretError> {
        let key = self.key()?;
        let mut set = LentSet::new();
        for (rule, own) in rules.iter().enumerate() {
            for value in own.values() {
                let name = name(policy, rule, &value.header);
                let sealed = key.seal("", &name, &value.content)?;
                set.insert((rule, value.header), sealed);
            }
        }
        self.lent.0.write().insert(policy.to_owned(), set);
        Ok(())
    }

    pub fn end_lent_headers(&self, policy: &str) {
        self.lent.0.write().remove(policy);
    }

    /// Opens a lent value for one use; with its name, which no other has.
    pub fn open_lent(
        &self,
        policy: &str,
        rule: usize,
        header: &str,
    ) -> Result<(String, SecretContent), SecretError> {
        let name = name(policy, rule, header);
        let lent = self.lent.0.read();
        let sealed = lent.get(policy).and_then(|set| set.get(&(rule, header.to_owned()))).cloned();
        drop(lent);
        let sealed = sealed.ok_or_else(|| SecretError::NotFound(name.clone()))?;
        let content = self.key()?.open("", &name, &sealed)?;
        Ok((name, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::MasterKey;

    #[test]
    fn lent_values_are_sealed_and_end() {
        let book = SecretBook::new(Ok(MasterKey::new([7; 32])));
        let rule = HeaderRule::short("host=a.example,header=X,value=s3cret").expect("a rule");
        book.lend_headers("p", &[rule]).expect("lent");
        assert!(!format!("{book:?}").contains("s3cret"));
        let (name, content) = book.open_lent("p", 0, "x").expect("a value");
        let SecretContent::Value(value) = content else { panic!("{name}") };
        assert_eq!((name.as_str(), value.reveal()), ("p/0/x", "s3cret"));
        for (policy, rule, header) in [("q", 0, "x"), ("p", 1, "x"), ("p", 0, "y")] {
            book.open_lent(policy, rule, header).expect_err(policy);
        }
        assert_eq!(book.of_account(""), [], "no account has it");
        book.end_lent_headers("p");
        book.open_lent("p", 0, "x").expect_err("ended");
    }
}
