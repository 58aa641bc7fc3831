#!/usr/bin/env bash
# Serves machines on 127.0.0.1:7717. The first start compiles, and `serve` prepares the default
# template before it is ready, and JavaScript's in the background. Later starts build nothing: they
# only open the data directory.
#
#   built  the directory of the programs;  build  the command that builds them
set -euo pipefail
cd "$(dirname "$0")/.."

built=${built:-target/release}
build=${build:-cargo build --release --locked --bin stasis --bin stasis-prepare --bin stasis-spawner}
program=$built/stasis

# Whether a source is newer than the program, or the program does not exist.
stale() {
  [[ -x $program && -x $built/stasis-prepare && -x $built/stasis-spawner ]] || return 0
  [[ -n $(find Cargo.toml Cargo.lock crates -newer "$program" -type f -print -quit) ]]
}

if stale; then
  bash dev/setup.sh packages
  $build
  # cargo leaves a program alone that it finds unchanged
  touch "$program"
fi
exec "$program" serve --prepare javascript "$@"
