# A host of its own for the commands of one page, in namespaces of mounts and network: a network with
# nothing but loopback, and an /etc, a /usr/local and a /var/lib of its own.
#
#   $HOST  on the disk: etc and usr-local, what is changed there; var-lib; state; there, another host
#   $BIN   the programs of this build
set -euo pipefail

ip link set lo up
for place in /etc /usr/local; do
  layer=$HOST/${place//\//-}
  mkdir -p "$layer" "$layer.work" "$place"
  mount -t overlay stasis-test -o "lowerdir=$place,upperdir=$layer,workdir=$layer.work" "$place"
done
mount --bind "$HOST/var-lib" /var/lib
# of another version, perhaps
rm -rf /usr/local/bin/stasis /usr/local/bin/stasis-* /etc/stasis /etc/systemd/system/stasis.service

status=0
bash -euo pipefail "$HOST/page.sh" || status=$?

# whatever became of it, nobody keeps a directory afterwards
gone() { [[ ! -e /proc/$1 ]] || grep -q '^State:.*Z' "/proc/$1/status"; }
for pid in $(cat "$HOST"/state/*.pid 2>/dev/null || true); do
  kill "$pid" 2>/dev/null || true
  until gone "$pid"; do sleep 0.05; done
done
for home in "$HOME" "$HOST/there"; do
  env -i PATH="$PATH" HOME="$home" "$BIN/stasis" stop 2>/dev/null || true
done
exit "$status"
