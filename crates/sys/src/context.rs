//! The operation that an error of the system belongs to.

/// Gives a crate its trait `ErrorContext`, whose `doing` makes the crate's error of a system's.
/// That error has the variant `Io { doing: String, source: std::io::Error }`.
#[macro_export]
macro_rules! error_context {
    ($error:ident) => {
        /// Adds to an error of the system what was being done.
        pub(crate) trait ErrorContext<T> {
            fn doing(self, what: impl FnOnce() -> String) -> std::result::Result<T, $error>;
        }

        impl<T> ErrorContext<T> for std::io::Result<T> {
            fn doing(self, what: impl FnOnce() -> String) -> std::result::Result<T, $error> {
                self.map_err(|source| $error::Io { doing: what(), source })
            }
        }
    };
}
