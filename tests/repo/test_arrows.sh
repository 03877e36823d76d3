#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_arrows.sh -- every include in src/ is an arrow of the design's table of rooms ("Rooms" in design.md), and
# models/, cli/, examples/ and bench/ include public headers only; and models/ base/json.h.
#
#     bash test_arrows.sh SOURCE_DIR BUILD_DIR
#
# A header has an owner: "room/x.h" belongs to room/, <cgpipe/X.h> to room X; <cgpipe/tensor.h> to base, <cgpipe/images.h> and <cgpipe/tokenizer.h> to data. A room may
# include what it owns and what is owned by the rooms in its row. <cgpipe/cgpipe.h> and <cgpipe/models/...> are for
# programs. Exit code 1 if there is a forbidden arrow (printed as file:line) or if the check itself does not find one
# that it is shown.
set -u
export LC_ALL=C

# room: rooms whose headers, internal and public, it may include
TABLE="
base:
schedule: base
backend: base
op: base backend
model: base op
optim: base backend
partition: base backend op model
plan: base backend op model partition schedule optim
transport: base backend
pipeline: base schedule backend op model optim partition plan transport checkpoint
data: base
checkpoint: base
"

# Directories of programs: no room is theirs.
PROGRAMS="models cli examples bench"

# check DIR: print "file:line: reason" for each forbidden include below DIR; then "checked N", the number of includes seen.
check() {
    (cd "$1" && for directory in src $PROGRAMS; do
        [ -d "$directory" ] && find "$directory" -type f \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' \)
    done | sort | tr '\n' '\0' | xargs -0 -r grep -HnE '^[[:space:]]*#[[:space:]]*include' /dev/null) |
        awk -v table="$TABLE" '
        function rows(text, into,    line, n, i, j, m, parts, names) {
            n = split(text, line, "\n")
            for (i = 1; i <= n; i++) {
                if (line[i] == "")
                    continue
                split(line[i], parts, ":")
                into[parts[1], parts[1]] = 1
                rooms[parts[1]] = 1
                m = split(parts[2], names, " ")
                for (j = 1; j <= m; j++)
                    into[parts[1], names[j]] = 1
            }
        }
        function forbidden(reason) {
            print file ":" number ": " reason
        }
        BEGIN {
            rows(table, allowed)
        }
        {
            # file:number:#include "room/x.h"
            file = $0; sub(/:.*/, "", file)
            number = $0; sub(/^[^:]*:/, "", number); sub(/:.*/, "", number)
            what = $0; sub(/^[^:]*:[^:]*:[[:space:]]*#[[:space:]]*include[[:space:]]*/, "", what)
            checked++
            split(file, directories, "/")
            has_capacity = directories[1] == "src"
            room = directories[2]
            if (has_capacity && !(room in rooms)) {
                forbidden(file " is in no room of the table")
                next
            }
            target = what; sub(/^["<]/, "", target); sub(/[">].*$/, "", target)
            parts_of_target = split(target, part, "/")
            if (what ~ /^</ && part[1] != "cgpipe") {
                if (part[1] in rooms)
                    forbidden("<" target "> is internal; rooms are included with quotes")
                next # of the system, or of another library
            }
            if (what ~ /^</ || part[1] == "cgpipe") {
                if (!has_capacity)
                    next
                owner = part[2]; sub(/\.h$/, "", owner)
                if (owner == "ext" && parts_of_target == 3) { # for those who add to a room from outside
                    owner = part[3]; sub(/\.h$/, "", owner)
                    parts_of_target = 2
                }
                if (owner == "tensor")
                    owner = "base" # whose second header it is
                if (owner == "images" || owner == "tokenizer")
                    owner = "data" # whose second and third headers they are
                if (parts_of_target > 2 || owner == "cgpipe")
                    forbidden("room " room " includes <" target ">, which is for programs")
                else if (!(owner in rooms))
                    forbidden("room " room " includes <" target ">, which no room owns")
                else if (!((room, owner) in allowed))
                    forbidden("room " room " may not include <" target ">, of room " owner)
                next
            }
            if (what !~ /^"/) {
                forbidden("include of a macro, " what ", cannot be checked")
                next
            }
            if (target ~ /(^|\/)\.\.\//) {
                forbidden("\"" target "\" leaves its directory (name it from src/)")
            } else if (directories[1] == "models" && target == "base/json.h") {
                next # they are in the library, and JSON is hard to read where memory is short
            } else if (!has_capacity) {
                if (part[1] in rooms || part[1] == "src")
                    forbidden(directories[1] " may include only <cgpipe/...>, not \"" target "\"")
            } else if (parts_of_target > 1) {
                if (!(part[1] in rooms))
                    forbidden("room " room " includes \"" target "\", which is in no room of the table")
                else if (!((room, part[1]) in allowed))
                    forbidden("room " room " may not include \"" target "\", of room " part[1])
            } # else: a neighbour in the same directory
        }
        END { print "checked " checked + 0 }'
}

# A tree with one include of each kind that is forbidden, among others that are fine.
make_example() {
    mkdir -p "$1"/src/{base,op,schedule,plan/deep,data,cellar} "$1"/models "$1"/cli
    printf '#include <stdio.h>\n#include "base/base.h"\n#include "backend/x.h"\n' >"$1/src/base/a.c"
    printf '#include <cgpipe/tensor.h>\n#include "backend/backend.h"\n#include "model/model.h"\n' >"$1/src/op/op.h"
    printf '#include "base/base.h"\n  #  include   "plan/plan.h" /* why */\n' >"$1/src/schedule/s.c"
    printf '#include "neighbour.h"\n#include <cgpipe/optim.h>\n#include <cgpipe/pipeline.h>\n' >"$1/src/plan/deep/p.c"
    printf '#include <cgpipe/cgpipe.h>\n#include <cgpipe/models/gpt2.h>\n#include <cgpipe/other.h>\n' >"$1/src/data/d.c"
    printf '#include "../base/base.h"\n#include "attic/x.h"\n#include HEADER\n#include <base/base.h>\n' >"$1/src/data/e.h"
    printf '#include "base/base.h"\n' >"$1/src/cellar/c.c"
    printf '#include <cgpipe/cgpipe.h>\n#include <cgpipe/models/gpt2.h>\n#include "base/base.h"\n' >"$1/models/m.c"
    printf '#include "cli.h"\n#include "../src/op/op.h"\n#include "src/op/op.h"\n' >"$1/cli/main.c"
}

EXPECTED='cli/main.c:2: "../src/op/op.h" leaves its directory (name it from src/)
cli/main.c:3: cli may include only <cgpipe/...>, not "src/op/op.h"
models/m.c:3: models may include only <cgpipe/...>, not "base/base.h"
src/base/a.c:3: room base may not include "backend/x.h", of room backend
src/cellar/c.c:1: src/cellar/c.c is in no room of the table
src/data/d.c:1: room data includes <cgpipe/cgpipe.h>, which is for programs
src/data/d.c:2: room data includes <cgpipe/models/gpt2.h>, which is for programs
src/data/d.c:3: room data includes <cgpipe/other.h>, which no room owns
src/data/e.h:1: "../base/base.h" leaves its directory (name it from src/)
src/data/e.h:2: room data includes "attic/x.h", which is in no room of the table
src/data/e.h:3: include of a macro, HEADER, cannot be checked
src/data/e.h:4: <base/base.h> is internal; rooms are included with quotes
src/op/op.h:3: room op may not include "model/model.h", of room model
src/plan/deep/p.c:3: room plan may not include <cgpipe/pipeline.h>, of room pipeline
src/schedule/s.c:2: room schedule may not include "plan/plan.h", of room plan'

if [ $# -lt 1 ] || [ ! -d "$1/src" ]; then
    echo "test_arrows.sh: expected SOURCE_DIR with a directory src/, got '${1-}'" >&2
    exit 1
fi
example=$(mktemp -d) || exit 1
trap 'rm -rf "$example"' EXIT

make_example "$example"
found=$(check "$example" | grep -v '^checked ' | sort)
if [ "$found" != "$EXPECTED" ]; then
    echo "the check itself is wrong: for the example tree it should print < and prints >"
    diff <(echo "$EXPECTED") <(echo "$found")
    exit 1
fi

result=$(check "$1")
includes=$(echo "$result" | sed -n 's/^checked //p')
arrows=$(echo "$result" | grep -v '^checked ')
if [ -n "$arrows" ]; then
    echo "$arrows"
    echo "FAILED: $(echo "$arrows" | wc -l) forbidden arrows in $includes includes"
    exit 1
fi
if [ "${includes:-0}" -eq 0 ]; then
    echo "FAILED: no includes found below $1"
    exit 1
fi
echo "passed: $includes includes follow the table of rooms; 15 forbidden ones in an example tree were found"
