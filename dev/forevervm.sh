#!/usr/bin/env bash
# Builds foreverVM's published CLI, and a program that drives its published SDK, into DEST/bin:
#
#   dev/forevervm.sh DEST
#
# Both have the versions of the CLI's own lock file, so what one is built from is built for both.
set -euo pipefail
cd "$(dirname "$0")/.."
dest=$1
export CARGO_TARGET_DIR=$dest/target CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0

rm -rf "$dest"
cargo install --quiet --locked --debug --no-track --root "$dest" forevervm --version 0.1.35
cargo build --quiet --locked --manifest-path crates/server/tests/clients/forevervm/Cargo.toml
mv "$dest/target/debug/forevervm-driver" "$dest/bin/"
rm -rf "$dest/target"
