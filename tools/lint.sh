#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Format C sources, or check C sources and shell scripts:
#
#     tools/lint.sh format FILE...             clang-format, in place
#     BUILD=build tools/lint.sh lint FILE...   clang-format, clang-tidy (with BUILD's
#                                              compile_commands.json), shellcheck; changes nothing
#
# Without FILE, the script reads the files that tools/changed.sh prints or, with ALL=1 in the
# environment, all files.
#
# The versions are those of Debian 12 (clang 14). A missing tool is a failure. Files of other kinds
# are ignored.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
mode=$1
shift
files=()
[ $# -gt 0 ] || mapfile -t files < <(tools/changed.sh ${ALL:+all})
set -- "$@" "${files[@]}"
c=() units=() scripts=()
for file; do
    case $file in
    *.c) c+=("$file") units+=("$file") ;;
    *.h) c+=("$file") ;;
    *.sh | .ci/*) scripts+=("$file") ;;
    esac
done

# tool NAME: print NAME-14 if it is installed, otherwise NAME
tool() {
    for name in "$1-14" "$1"; do
        command -v "$name" >/dev/null && { echo "$name"; return; }
    done
    echo "lint: $1 is missing (Debian: apt-get install $1)" >&2
    return 1
}

if [ "$mode" = format ]; then
    format=$(tool clang-format) || exit 1
    [ ${#c[@]} -eq 0 ] || "$format" -i "${c[@]}"
    exit
fi
failed=0
if [ ${#c[@]} -gt 0 ]; then
    format=$(tool clang-format) && tidy=$(tool clang-tidy) || exit 1
    "$format" --dry-run -Werror "${c[@]}" || failed=1
    known=()
    for file in "${units[@]}"; do # only files that this build compiles
        grep -q "\"file\": \".*/$file\"" "${BUILD:-build}/compile_commands.json" && known+=("$file")
    done
    [ ${#known[@]} -eq 0 ] ||
        printf '%s\n' "${known[@]}" | xargs -P "$(nproc)" -n 4 "$tidy" -p "${BUILD:-build}" --quiet 2>/dev/null || failed=1
fi
if [ ${#scripts[@]} -gt 0 ]; then
    check=$(tool shellcheck) || exit 1
    "$check" -S warning "${scripts[@]}" || failed=1
fi
echo "lint: ${#c[@]} C files, ${#scripts[@]} scripts: $([ $failed = 0 ] && echo fine || echo 'see above')"
exit $failed
