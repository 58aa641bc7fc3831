#!/usr/bin/env bash
# Stands in for what commands of pages need and a test has not, under the name it is called by. Each does the
# same as far as it can be done here, with the real programs of this build, and refuses what it does not know.
set -euo pipefail
as=${0##*/}
# what is called from here is the real thing
PATH=$PLAIN_PATH

fail() {
  echo "$as: no stand-in for: $*" >&2
  exit 64
}

# in the background, until it listens; then what it said
keep() {
  local log=$HOST/state/$as.log
  setsid "$@" </dev/null >"$log" 2>&1 &
  echo $! >"$HOST/state/$as.pid"
  until grep -q '^listening on' "$log"; do
    kill -0 $! || { cat "$log" >&2; exit 1; }
    sleep 0.05
  done
  cat "$log"
}

case "$as $*" in
  # tests are root
  sudo\ *) PATH=$STANDINS:$PATH exec "$@" ;;

  # another terminal
  stasis\ serve*) keep stasis "$@" ;;
  stasis\ *) exec stasis "$@" ;;
  # the real goals, with the programs that are built already
  "make run") keep make -s -C "$REPOSITORY" run build=: built="$BIN" ;;
  make\ -n*) exec make "$@" ;;
  "make install") exec make -s -C "$REPOSITORY" install build=: built="$BIN" ;;

  # there is no systemd
  systemctl\ *) exec "$PYTHON" "$STANDINS/systemctl.py" "$@" ;;

  # another host is another home, with a data directory and a daemon of its own
  "scp "*" there:") cp -- "$1" "$HOST/there/" ;;
  "ssh there "*)
    shift
    cd "$HOST/there"
    # as words for a shell over there
    exec env -i PATH="$PATH" HOME="$HOST/there" STASIS_TIMEOUT_SECONDS="$STASIS_TIMEOUT_SECONDS" \
      bash -c "$*"
    ;;

  # packages that are not published yet, as this build makes them
  "pip install stasis-sdk")
    "$PYTHON" -m pip install --quiet --no-deps --no-index --find-links "$WORK/wheel" \
      --target "$HOME/site-packages" "$2"
    PYTHONPATH=$HOME/site-packages "$PYTHON" -c 'import stasis'
    ;;
  "npm install @stasis/sdk")
    npm install --offline --no-audit --no-fund --silent "$WORK"/tarball/*.tgz
    test -f "node_modules/$2/package.json"
    ;;
  *) fail "$@" ;;
esac
