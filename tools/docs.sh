#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make web pages of the public headers and the guide: tools/docs.sh FOLDER. A doxygen warning is an
# error.
set -eu
command -v doxygen >/dev/null 2>&1 || { echo "docs: needs doxygen (apt-get install doxygen)" >&2; exit 1; }
directory=$1
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
cd "$(dirname "$0")/.."
FOLDER="$directory" VERSION=$(sed -n 's/^#define CGP_VERSION "\(.*\)"/\1/p' include/cgpipe/base.h) doxygen docs/Doxyfile
echo "$directory/html/index.html"
