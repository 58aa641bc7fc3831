"""As much of systemctl as pages use, for our unit, from the file that `make install` put there.

The service is started as the unit says: its command, its environment, its directory; it is waited for until it says
that it is ready. It is stopped with SIGTERM, and has to end.
"""

import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time

UNIT = pathlib.Path("/etc/systemd/system/stasis.service")
STATE = pathlib.Path(os.environ["HOST"], "state")
PID = STATE / "systemd.pid"
LOG = STATE / "systemd.log"


def settings(section):
    """Keys and all their values of a section."""
    found, here = {}, None
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            here = line.strip("[]")
        elif "=" in line and not line.startswith("#") and here == section:
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def environment(service):
    found = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        # a busy machine takes its time
        "STASIS_TIMEOUT_SECONDS": os.environ["STASIS_TIMEOUT_SECONDS"],
    }
    words = [word for line in service["Environment"] for word in shlex.split(line)]
    for name in service["EnvironmentFile"]:
        file = pathlib.Path(name.lstrip("-"))
        if file.exists() or not name.startswith("-"):
            words += file.read_text().split()
    return {**found, **dict(word.split("=", 1) for word in words)}


def running():
    """The process of the service, if it lives."""
    if not PID.exists():
        return None
    pid = int(PID.read_text())
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else pid


def start():
    if running():
        return
    (service,) = [settings("Service")]
    (kind,), (command,) = service["Type"], service["ExecStart"]
    assert kind == "notify", f"no stand-in for Type={kind}"
    for name in service["StateDirectory"]:
        mode = int(service["StateDirectoryMode"][0], 8)
        pathlib.Path("/var/lib", name).mkdir(mode=mode, exist_ok=True)
    address = STATE / "notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, LOG.open("wb") as log:
        told.bind(str(address))
        told.settimeout(0.2)
        process = subprocess.Popen(
            shlex.split(command),
            env={**environment(service), "NOTIFY_SOCKET": str(address)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        PID.write_text(str(process.pid))
        while True:
            try:
                if b"READY=1" in told.recv(4096).splitlines():
                    return
            except TimeoutError:
                if process.poll() is not None:
                    sys.exit(f"stasis.service ended with {process.returncode}:\n{LOG.read_text()}")


def stop():
    pid = running()
    if pid:
        os.kill(pid, signal.SIGTERM)
    while running():
        time.sleep(0.05)


def status():
    print("active (running)" if running() else "inactive (dead)")
    sys.exit(0 if running() else 3)


def main(words):
    now = "--now" in words
    verb, *units = [word for word in words if word != "--now"]
    if verb == "daemon-reload":
        return settings("Service")["ExecStart"]
    assert units == ["stasis"] and UNIT.exists(), f"no unit {units}"
    if verb == "enable":
        assert settings("Install")["WantedBy"] == ["multi-user.target"]
        return start() if now else None
    if verb == "restart":
        stop()
        return start()
    return {"start": start, "stop": stop, "status": status}[verb]()


main(sys.argv[1:])
