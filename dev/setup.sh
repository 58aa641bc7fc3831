#!/usr/bin/env bash
# Prepares everything that building, testing and the benches need, under .dev:
#
#   .dev/venv      the host's Python with the libraries of dev/requirements.txt
#   .dev/node      a link to the host's Node;  .dev/deno  Deno
#   .dev/programs  the C programs of tests/programs, built
#   .dev/clients   a Python with published clients that the service is tested with
#   .dev/schemathesis  a Python with schemathesis, which makes up requests
#   .dev/forevervm foreverVM's published CLI, and a program that drives its published SDK
#   .dev/mcp       MCP's conformance suite and its official clients, with a Node that runs them
#   .dev/mcp2      a Python with the second line of MCP's official client; the first is in clients
#   .dev/sdk       what the SDKs are built and tested with: a Python, TypeScript, Bun
#   .dev/web       HTTP clients for Python and Node that machines are tested with
#   .dev/browser   Chromium without windows, for the JavaScript SDK
#   .dev/rootfs    a root file system to run all of them in, each at its own path
#
# A step that succeeded is not run again until its inputs change (.dev/stamps).
set -euo pipefail
cd "$(dirname "$0")/.."
here=$(pwd -P)

UV=0.13.7
DENO=2.9.6
TYPESCRIPT=7.0.2
BUN=1.4.4
CHROMIUM=153.0.0

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }
hash_of() { sha256sum | cut -c1-32; }

# step NAME KEY COMMAND...
step() {
  local name=$1 key=$2
  shift 2
  [[ "$(cat ".dev/stamps/$name" 2>/dev/null || true)" == "$key" ]] && return
  say "$name"
  rm -f ".dev/stamps/$name"
  "$@"
  echo "$key" >".dev/stamps/$name"
}

# Independent steps run in parallel: most of them wait for the network.
jobs=()
meanwhile() {
  "$@" &
  jobs+=($!)
}
finish() {
  local job
  for job in "${jobs[@]}"; do
    wait "$job" || fail "a step failed; its own message is above"
  done
  jobs=()
}

missing_packages() {
  echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1 || echo gcc libc6-dev
  compgen -G '/usr/lib*/*/libjemalloc.so.2' >/dev/null || echo libjemalloc2
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
  command -v node >/dev/null || echo nodejs
  command -v npm >/dev/null || echo npm
  command -v ip >/dev/null || echo iproute2
}

packages() {
  local missing
  missing=$(missing_packages | xargs)
  [[ -z "$missing" ]] && return
  command -v apt-get >/dev/null || fail "please install what Debian calls: $missing"
  [[ $EUID -eq 0 ]] || fail "please run as root: apt-get install $missing"
  say "packages: $missing"
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of names
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

make_venv() {
  rm -rf .dev/venv .dev/uv
  python3 -m venv .dev/venv
  local pip=(.dev/venv/bin/python -m pip install --quiet --disable-pip-version-check)
  if "${pip[@]}" --target .dev/uv "uv==$UV" 2>/dev/null &&
    .dev/uv/bin/uv pip install --quiet --python .dev/venv/bin/python --compile-bytecode \
      -r dev/requirements.txt; then
    return
  fi
  say "uv did not do it; trying pip"
  "${pip[@]}" -r dev/requirements.txt
}

# make_python NAME: with what dev/NAME.txt lists
make_python() {
  python3 -m venv --clear ".dev/$1"
  ".dev/$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "dev/$1.txt"
}

make_mcp2() {
  python3 -m venv --clear .dev/mcp2
  .dev/mcp2/bin/python -m pip install --quiet --disable-pip-version-check -r dev/mcp2.txt
}

# The suite needs a newer Node than hosts have, so one is installed.
make_mcp() {
  rm -rf .dev/mcp
  mkdir -p .dev/mcp
  # shellcheck disable=SC2046 # a list of packages
  npm install --prefix .dev/mcp --no-save --no-audit --no-fund --ignore-scripts --silent \
    $(grep -v '^#' dev/mcp.txt)
}

make_deno() {
  rm -rf .dev/deno
  mkdir -p .dev/deno/npm
  npm install --prefix .dev/deno/npm --no-save --no-audit --no-fund --ignore-scripts --silent \
    "@deno/linux-x64-glibc@$DENO"
  mv .dev/deno/npm/node_modules/@deno/linux-x64-glibc/deno .dev/deno/deno
  rm -r .dev/deno/npm
}

make_sdk() {
  rm -rf .dev/sdk
  mkdir -p .dev/sdk/js
  python3 -m venv .dev/sdk/python
  .dev/sdk/python/bin/python -m pip install --quiet --disable-pip-version-check -r dev/sdk.txt
  npm install --prefix .dev/sdk/js --no-save --no-audit --no-fund --ignore-scripts --silent \
    "typescript@$TYPESCRIPT" "@oven/bun-linux-x64@$BUN"
  mv .dev/sdk/js/node_modules/@oven/bun-linux-x64/bin/bun .dev/sdk/js/bun
}

# shellcheck disable=SC2046 # lists of packages
make_web() {
  rm -rf .dev/web
  mkdir -p .dev/web
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
    --target .dev/web/python $(sed -n 's/^python //p' dev/web.txt)
  npm install --prefix .dev/web --no-save --no-audit --no-fund --ignore-scripts --silent \
    $(sed -n 's/^node //p' dev/web.txt)
}

fill_rootfs() {
  .dev/venv/bin/python dev/rootfs.py "$1" .dev/venv .dev/deno .dev/node .dev/programs tests/programs
}

make_rootfs() {
  rm -rf .dev/rootfs.new
  fill_rootfs .dev/rootfs.new
  if [[ $EUID -eq 0 ]]; then
    check_rootfs .dev/rootfs.new
  fi
  rm -rf .dev/rootfs.old
  [[ ! -e .dev/rootfs ]] || mv .dev/rootfs .dev/rootfs.old
  mv .dev/rootfs.new .dev/rootfs
  rm -rf .dev/rootfs.old
}

# Each interpreter starts inside, with nothing mounted.
check_rootfs() {
  local inside=(chroot "$1" /usr/bin/env -i PATH=/usr/bin HOME=/tmp/check DENO_NO_UPDATE_CHECK=1)
  "${inside[@]}" "$here/.dev/venv/bin/python" -B -c 'import numpy, pandas, matplotlib, ssl, sqlite3'
  "${inside[@]}" "$here/.dev/node/node" -e 1
  "${inside[@]}" "$here/.dev/deno/deno" eval 1
  "${inside[@]}" "$here/.dev/programs/tls" </dev/null >/dev/null
  rm -rf "$1/tmp/check"
}

packages
command -v cargo >/dev/null || fail "please install Rust 1.95 or newer (rustup)"
# everything that building and serving need
[[ "${1:-}" != packages ]] || exit 0
mkdir -p .dev/stamps .dev/node
exec 9>.dev/lock
flock 9

python=$(python3 -c 'import sys; print(sys.version, sys.base_prefix)')
node=$(node -p process.execPath)
ln -sfn "$node" .dev/node/node

venv=$({ echo "$here $python $UV"; cat dev/requirements.txt; } | hash_of)
meanwhile step venv "$venv" make_venv
meanwhile step deno "$DENO" make_deno
for name in clients schemathesis; do
  meanwhile step "$name" "$({ echo "$here $python"; cat "dev/$name.txt"; } | hash_of)" make_python "$name"
done
meanwhile step forevervm "$(cat dev/forevervm.sh crates/server/tests/clients/forevervm/{Cargo.*,src/*} | hash_of)" \
  bash dev/forevervm.sh "$here/.dev/forevervm"
meanwhile step mcp "$({ echo "$here"; cat dev/mcp.txt; } | hash_of)" make_mcp
meanwhile step mcp2 "$({ echo "$here $python"; cat dev/mcp2.txt; } | hash_of)" make_mcp2
meanwhile step sdk "$({ echo "$here $python $TYPESCRIPT $BUN"; cat dev/sdk.txt; } | hash_of)" make_sdk
meanwhile step web "$({ echo "$here $python"; cat dev/web.txt; } | hash_of)" make_web
meanwhile step browser "$({ echo "$here $CHROMIUM"; cat dev/browser.sh; } | hash_of)" \
  bash dev/browser.sh "$CHROMIUM" "$here/.dev/browser"
python3 tests/programs/run_plain.py --build-only --out .dev/programs
finish
rootfs=$({
  echo "$venv $DENO" && stat -c '%n %s %y' "$node"
  cat dev/rootfs.py dev/setup.sh /etc/ld.so.cache
} | hash_of)
step rootfs "$rootfs" make_rootfs
programs=$(find tests/programs .dev/programs -name __pycache__ -prune -o -type f -print0 |
  sort -z | xargs -0 sha256sum | hash_of)
step programs "$rootfs $programs" fill_rootfs .dev/rootfs
