#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Delete what `make install` puts into a directory: tools/uninstall.sh BUILD PREFIX
#
# To find these files, the script first installs them into a temporary directory, so it needs no
# list of files. Directories named after cgpipe are deleted if they are empty.
set -eu
build=$1
prefix=$2
list=$(mktemp -d)
trap 'rm -rf "$list"' EXIT
DESTDIR='' cmake --install "$build" --prefix "$list" >/dev/null
rm -f "$build/install_manifest.txt"
cd "$list"
find . \( -type f -o -type l \) -exec sh -c 'cd "$0" && rm -f -- "$@"' "$prefix" {} +
find . -depth -type d -path '*cgpipe*' | while IFS= read -r directory; do
    rmdir "$prefix/$directory" 2>/dev/null || true
done
echo "uninstalled from $prefix"
