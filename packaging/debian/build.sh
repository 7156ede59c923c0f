#!/bin/bash
# Debian packages out of a build: kiln (service), kiln-worker, kiln-cli. usage: packaging/debian/build.sh BUILD OUT
# dpkg-deb alone: dependencies are those of the binaries as dpkg knows them, times are those of the last commit, so the same build gives the same bytes.
set -eu
cd "$(dirname "$0")/../.."
build=$1 out=$2
version=$(sed -n 's/^#define SERVICE_VERSION "\(.*\)"/\1/p' service/service.h)
arch=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

libraries() { # of a binary: the packages that own what it needs
    objdump -p "$1" | awk '$1 == "NEEDED" {print $2}' >"$work/needed"
    ldd "$1" | awk '$2 == "=>" {print $1, $3}' | grep -wFf "$work/needed" | cut -d' ' -f2 | while read -r l; do
        dpkg -S "$l" 2>/dev/null || dpkg -S "$(readlink -f "$l")" 2>/dev/null || dpkg -S "/usr$l" 2>/dev/null || true
    done | cut -d: -f1 | sort -u | grep -vx -e gcc-12-base -e "$2" | paste -sd, | sed 's/,/, /g'
}

control() { # package, depends, recommends, description, long
    mkdir -p "$work/$1/DEBIAN" "$work/$1/usr/share/doc/$1"
    cp LICENSE "$work/$1/usr/share/doc/$1/copyright"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: Kiln maintainers <maintainers@kiln.invalid>\n' "$1" "$version" "$arch"
        printf 'Section: devel\nPriority: optional\nDepends: %s\n' "$2"
        [ -z "$3" ] || printf 'Recommends: %s\n' "$3"
        printf 'Installed-Size: %s\nDescription: %s\n %s\n' "$(du -sk "$work/$1" | cut -f1)" "$4" "$5"
    } >"$work/$1/DEBIAN/control"
}

pack() {
    find "$work/$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz "-z${DEB_LEVEL:-6}" --build "$work/$1" "$out/$1_${version}_$arch.deb" >/dev/null
    echo "$out/$1_${version}_$arch.deb"
}

user='getent passwd kiln >/dev/null || useradd --system --home-dir /var/lib/kiln --no-create-home --shell /usr/sbin/nologin kiln'
scripts() { # package, unit
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nset -e\n%s\n[ -d /run/systemd/system ] || exit 0\nsystemctl daemon-reload\n[ -z "$2" ] || systemctl try-restart %s\n' "$user" "$2" >"$work/$1/DEBIAN/postinst"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nset -e\n[ "$1" != remove ] || [ ! -d /run/systemd/system ] || systemctl stop %s\n' "$2" >"$work/$1/DEBIAN/prerm"
    chmod 755 "$work/$1/DEBIAN/postinst" "$work/$1/DEBIAN/prerm"
}

install -Ds -m755 "$build/kilnd" "$work/kiln/usr/bin/kilnd"
mkdir -p "$work/kiln/usr/share/kiln/hwspecs" "$work/kiln/usr/share/doc/kiln"
cp hwspecs/*.json "$work/kiln/usr/share/kiln/hwspecs/"
cp docs/operations.md docs/api.md "$work/kiln/usr/share/doc/kiln/"
install -D -m644 packaging/systemd/kilnd.service "$work/kiln/usr/lib/systemd/system/kilnd.service"
install -D -m640 packaging/kilnd.conf "$work/kiln/etc/kiln/kilnd.conf"
control kiln "$(libraries "$build/kilnd" kiln), kiln-worker (= $version), passwd" "gcc | c-compiler" "compilation service for tensor kernels" \
    "kilnd answers POST /compile with an efficient kernel for a device, remembers it, and keeps improving it."
printf '/etc/kiln/kilnd.conf\n' >"$work/kiln/DEBIAN/conffiles"
scripts kiln kilnd.service
sed -i '3a chgrp kiln /etc/kiln/kilnd.conf' "$work/kiln/DEBIAN/postinst"

install -Ds -m755 "$build/kiln-worker" "$work/kiln-worker/usr/bin/kiln-worker"
install -Ds -m755 "$build/kiln-child" "$work/kiln-worker/usr/bin/kiln-child"
install -Ds -m755 "$build/kiln-gpu-run" "$work/kiln-worker/usr/bin/kiln-gpu-run"
install -D -m644 packaging/systemd/kiln-worker.service "$work/kiln-worker/usr/lib/systemd/system/kiln-worker.service"
control kiln-worker "$(libraries "$build/kiln-worker" kiln-worker), passwd" "gcc | c-compiler, bubblewrap" "worker of the Kiln compilation service" \
    "Compiles, verifies and measures kernels in sandboxed children; kilnd starts it for compiles, a fleet runs it on its own."
scripts kiln-worker kiln-worker.service

install -Ds -m755 "$build/kiln" "$work/kiln-cli/usr/bin/kiln"
control kiln-cli "$(libraries "$build/kiln" kiln-cli)" "" "command line of the Kiln compilation service" "Asks a Kiln service for kernels, runs and explains them."

for p in kiln kiln-worker kiln-cli; do pack $p; done
