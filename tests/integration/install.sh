#!/bin/bash
# The Debian packages installed by dpkg, as on a machine: in a copy-on-write layer over this one's root, in mount and process namespaces of its own.
# The service runs as its own user from the installed files, compiles, and everything goes again with dpkg -P.
set -eu
cd "$(dirname "$0")/../.."
build=$(realpath "${KILN_BUILD:-build}")
[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
command -v dpkg-deb unshare chroot >/dev/null || { echo "no dpkg-deb or unshare"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/top" "$work/root"
unshare -m sh -c "mount -t tmpfs none '$work/top' && mkdir '$work/top/u' '$work/top/w' &&
    mount -t overlay overlay -o lowerdir=/,upperdir='$work/top/u',workdir='$work/top/w' '$work/root'" 2>/dev/null || { echo "no overlay mounts here"; exit 77; }
DEB_LEVEL=0 packaging/debian/build.sh "$build" "$work/packages" >/dev/null
port=$(python3 tests/free_port.py)

cat >"$work/inside" <<'IN'
set -eu
fail() { echo "FAIL $*"; exit 1; }
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
getent passwd kiln >/dev/null && userdel kiln
dpkg -i /packages/kiln-worker_*.deb /packages/kiln_*.deb /packages/kiln-cli_*.deb >/log 2>&1 || { cat /log; fail "dpkg -i"; }
dpkg -s kiln kiln-worker kiln-cli | grep -c '^Status: install ok installed' | grep -qx 3 || fail "not all are installed"
getent passwd kiln | grep -q nologin || fail "no user kiln"
[ "$(stat -c '%a %U:%G' /etc/kiln/kilnd.conf)" = "640 root:kiln" ] || fail "$(stat -c '%a %U:%G' /etc/kiln/kilnd.conf)"
for p in kiln kiln-worker kiln-cli; do
    dpkg -L $p | while read -r f; do [ -e "$f" ] || fail "$p lacks $f"; done
    dpkg --verify $p | grep . && fail "$p was changed"
done
# What systemd does for the unit: its folders, its variables, its user.
state=$(sed -n 's/^StateDirectory=//p' /usr/lib/systemd/system/kilnd.service) run=$(sed -n 's/^RuntimeDirectory=//p' /usr/lib/systemd/system/kilnd.service)
install -d -o kiln -g kiln "/var/lib/$state" "/run/$run"
as_kiln() { exec setpriv --reuid=kiln --regid=kiln --clear-groups --no-new-privs env -i PATH=/usr/bin:/bin $(sed -n 's/^Environment=//p' /usr/lib/systemd/system/kilnd.service) "$@"; }
(as_kiln $(sed -n 's/^ExecStartPre=//p' /usr/lib/systemd/system/kilnd.service) >/dev/null) || fail "settings"
as_kiln $(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/kilnd.service) --listen "127.0.0.1:$PORT" 2>/log &
service=$!
for _ in $(seq 200); do grep -q '"ready"' /log && break; sleep 0.1; done
grep -q '"ready"' /log || { cat /log; fail "not ready"; }
ask='y[A] = max(x[A], 0.0)'
curl -fsS -m 60 "http://127.0.0.1:$PORT/compile?target=host&x=f32:1000" -H 'Content-Type: text/x-kex' -H 'Accept: text/x-c' --data-binary "$ask" | grep -c kiln_abi_version >/dev/null || fail "no kernel"
curl -fsS -m 60 "http://127.0.0.1:$PORT/compile?target=host&x=f32:1000" -H 'Content-Type: text/x-kex' --data-binary "$ask" | grep -c '"ok":true' >/dev/null || fail "it has not been run"
KILN_URL=unix:/run/kiln/kiln.sock kiln targets | grep -c nvidia-h200 >/dev/null || fail "the command line does not reach it"
dpkg -i /packages/kiln_*.deb >/log2 2>&1 || fail "a second install"
kill $service
wait $service || fail "the service ended with $?"
dpkg -r kiln kiln-worker kiln-cli >/dev/null 2>&1 || fail "dpkg -r"
[ -e /etc/kiln/kilnd.conf ] || fail "settings went with dpkg -r"
dpkg -P kiln kiln-worker kiln-cli >/dev/null 2>&1 || fail "dpkg -P"
[ ! -e /etc/kiln/kilnd.conf ] && [ ! -e /usr/bin/kilnd ] && [ ! -e /usr/share/kiln ] || fail "something stays"
IN
unshare -m -p -f bash -c "
    mount -t tmpfs none '$work/top' && mkdir '$work/top/u' '$work/top/w'
    mount -t overlay overlay -o lowerdir=/,upperdir='$work/top/u',workdir='$work/top/w' '$work/root'
    mount -t proc proc '$work/root/proc'; mount --rbind /dev '$work/root/dev'; mount -t tmpfs none '$work/root/run'; mount -t tmpfs -o mode=1777 none '$work/root/tmp'
    mkdir '$work/root/packages'; cp '$work'/packages/*.deb '$work/root/packages/'; cp '$work/inside' '$work/root/inside'
    PORT=$port exec chroot '$work/root' /bin/bash /inside"
