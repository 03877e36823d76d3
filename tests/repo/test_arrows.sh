#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_arrows.sh -- check includes between modules. Every include in src/ and data/ must be in the
# table of modules below. models/, cli/, examples/ and bench/ may include only public headers;
# models/ and cli/ may also include base/json.h. ARCHITECTURE.md shows the same table.
#
# Calls between the files of cli/ must not form a circle. The same holds for calls between the
# directories of cli/.
#
#     bash test_arrows.sh SOURCE_DIR BUILD_DIR
#
# A plug-in is a module of its own: mpi is src/transport/mpi, and cuda is src/backend/cuda. Each
# header belongs to a module:
#
# - "module/x.h" belongs to module, <cgpipe/X.h> to X, with these exceptions:
# - <cgpipe/tensor.h>, <cgpipe/op.h>, <cgpipe/ext/ops.h>: base
# - <cgpipe/images.h>, <cgpipe/tokenizer.h>: data
# - <cgpipe/compare.h>: schedule
# - <cgpipe/devices.h>: backend
# - <cgpipe/graph.h>: model
# - <cgpipe/planner.h>: plan
# - <cgpipe/digest.h>, <cgpipe/parameters.h>, <cgpipe/profile.h>, <cgpipe/replay.h>,
#   <cgpipe/save.h>: pipeline
#
# A module may include headers of its own and of the modules in its row. Only programs may include
# <cgpipe/cgpipe.h> and <cgpipe/models/...>. No header and no file outside src/plan may include
# plan/plan.h. The exit code is 1 if there is a forbidden include, which is printed as file:line. It
# is also 1 if the check misses a forbidden include in an example.
set -u
export LC_ALL=C

# Each row has a module, and the modules whose internal and public headers it may include.
TABLE="
base:
schedule: base
backend: base
op: base backend
model: base op
optim: base backend
partition: base backend op model schedule plugin
plan: base backend op model partition schedule optim plugin transport
transport: base backend
mpi: base transport plugin
cuda: base backend plugin
plugin: base backend transport
pipeline: base schedule backend op model optim partition plan plugin transport checkpoint
data: base
checkpoint: base
"

# Directories of programs; programs belong to no module.
PROGRAMS="models cli examples bench"

# check DIR: print "file:line: reason" for each forbidden include below DIR. Then print "checked N",
# where N is the number of includes.
check() {
    (cd "$1" && for directory in src data $PROGRAMS; do
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
                modules[parts[1]] = 1
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
            # file:number:#include "module/x.h"
            file = $0; sub(/:.*/, "", file)
            number = $0; sub(/^[^:]*:/, "", number); sub(/:.*/, "", number)
            what = $0; sub(/^[^:]*:[^:]*:[[:space:]]*#[[:space:]]*include[[:space:]]*/, "", what)
            checked++
            split(file, directories, "/")
            in_module = directories[1] == "src" || directories[1] == "data"
            module = directories[1] == "src" ? directories[2] : "data"
            if (module == "transport" && directories[3] == "mpi") module = "mpi" # a plug-in is a module
            if (module == "backend" && directories[3] == "cuda") module = "cuda" # likewise
            if (in_module && !(module in modules)) {
                forbidden(file " is in no module of the table")
                next
            }
            target = what; sub(/^["<]/, "", target); sub(/[">].*$/, "", target)
            parts_of_target = split(target, part, "/")
            if (what ~ /^</ && part[1] != "cgpipe") {
                if (part[1] in modules)
                    forbidden("<" target "> is internal; modules are included with quotes")
                next # a header of the system or of another library
            }
            if (what ~ /^</ || part[1] == "cgpipe") {
                if (!in_module)
                    next
                owner = part[2]; sub(/\.h$/, "", owner)
                if (owner == "ext" && parts_of_target == 3) { # ext/X.h extends the module X
                    owner = part[3]; sub(/\.h$/, "", owner)
                    parts_of_target = 2
                }
                if (owner == "tensor" || owner == "ops" || (owner == "op" && part[2] == "op.h"))
                    owner = "base" # types that every module reads
                if (owner == "images" || owner == "tokenizer")
                    owner = "data" # headers of the module data
                if (owner == "graph")
                    owner = "model" # model reads and writes graph files
                if (owner == "digest" || owner == "parameters" || owner == "profile" || owner == "replay" || owner == "save")
                    owner = "pipeline"
                if (owner == "compare")
                    owner = "schedule"
                if (owner == "planner")
                    owner = "plan"
                if (owner == "devices")
                    owner = "backend"
                if (parts_of_target > 2 || owner == "cgpipe")
                    forbidden("module " module " includes <" target ">, which is for programs")
                else if (!(owner in modules))
                    forbidden("module " module " includes <" target ">, which no module owns")
                else if (!((module, owner) in allowed))
                    forbidden("module " module " may not include <" target ">, of module " owner)
                next
            }
            if (what !~ /^"/) {
                forbidden("include of a macro, " what ", cannot be checked")
                next
            }
            if (target ~ /(^|\/)\.\.\//) {
                forbidden("\"" target "\" leaves its directory (name it from src/)")
            } else if ((directories[1] == "models" || directories[1] == "cli") && target == "base/json.h") {
                next # base/json.h handles memory shortage and CGP_LIMITS
            } else if (!in_module) {
                if (part[1] in modules || part[1] == "src")
                    forbidden(directories[1] " may include only <cgpipe/...>, not \"" target "\"")
            } else if (parts_of_target > 1) {
                if (!(part[1] in modules))
                    forbidden("module " module " includes \"" target "\", which is in no module of the table")
                else if (!((module, part[1]) in allowed))
                    forbidden("module " module " may not include \"" target "\", of module " part[1])
            } # otherwise: a header in the same directory
        }
        END { print "checked " checked + 0 }'
}

# Print "CALLER DEFINER" for each file of cli/ that uses a function or table of another file of
# cli/. Print the same for the directories of the two files.
calls() {
    local files
    files=$(cd "$1/cli" && find . -name '*.c' ! -path './templates/*' | sed 's,^\./,,' | sort)
    # shellcheck disable=SC2086
    (cd "$1/cli" && awk '
        { gsub(/"([^"\\]|\\.)*"/, ""); gsub(/\/\*([^*]|\*[^\/])*\*\//, "") }
        /\/\*/ { comment = 1 }
        /\*\// { comment = 0; next }
        comment { next }
        pass == 1 && /^[a-z]/ && !/^(static|extern|typedef)/ && match($0, /[ *]cli_[a-z0-9_]+[\[(]/) {
            definer[substr($0, RSTART + 1, RLENGTH - 2)] = FILENAME
        }
        pass == 2 {
            while (match($0, /cli_[a-z0-9_]+/)) {
                name = substr($0, RSTART, RLENGTH)
                $0 = substr($0, RSTART + RLENGTH)
                if (!(name in definer)) continue
                pair = FILENAME " " definer[name]
                if (seen[pair]++) continue
                print pair
                gsub(/\/[^ ]*/, "", pair)
                print pair
            }
        }' pass=1 $files pass=2 $files)
}

# Print the files and directories of cli/ whose calls form a circle.
circles() { calls "$1" | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \([^-]\)/\1/p' | sort -u; }

# Create a tree with one forbidden include of each kind, and with allowed includes.
make_example() {
    mkdir -p "$1"/src/{base,op,schedule,plan/deep,cellar} "$1"/data "$1"/models "$1"/cli
    printf '#include <stdio.h>\n#include "base/base.h"\n#include "backend/x.h"\n' >"$1/src/base/a.c"
    printf '#include <cgpipe/tensor.h>\n#include "backend/registry.h"\n#include "model/model.h"\n' >"$1/src/op/op.h"
    printf '#include "base/base.h"\n  #  include   "plan/plan.h" /* why */\n' >"$1/src/schedule/s.c"
    printf '#include "neighbour.h"\n#include <cgpipe/optim.h>\n#include <cgpipe/pipeline.h>\n' >"$1/src/plan/deep/p.c"
    printf '#include <cgpipe/cgpipe.h>\n#include <cgpipe/models/gpt2.h>\n#include <cgpipe/other.h>\n' >"$1/data/d.c"
    printf '#include "../base/base.h"\n#include "attic/x.h"\n#include HEADER\n#include <base/base.h>\n' >"$1/data/e.h"
    printf '#include "base/base.h"\n' >"$1/src/cellar/c.c"
    printf '#include <cgpipe/cgpipe.h>\n#include <cgpipe/models/gpt2.h>\n#include "base/base.h"\n' >"$1/models/m.c"
    printf '#include "cli.h"\n#include "../src/op/op.h"\n#include "src/op/op.h"\n' >"$1/cli/main.c"
    printf '/* cli_c() */\nint cli_a(void) {\n    return cli_b() + cli_c();\n}\n' >"$1/cli/a.c"
    printf 'int cli_b(void) {\n    return cli_a();\n}\n' >"$1/cli/b.c"
    printf 'int cli_c(void) { /* after cli_a() */\n    puts("cli_b");\n}\n' >"$1/cli/c.c"
}

EXPECTED='cli/main.c:2: "../src/op/op.h" leaves its directory (name it from src/)
cli/main.c:3: cli may include only <cgpipe/...>, not "src/op/op.h"
data/d.c:1: module data includes <cgpipe/cgpipe.h>, which is for programs
data/d.c:2: module data includes <cgpipe/models/gpt2.h>, which is for programs
data/d.c:3: module data includes <cgpipe/other.h>, which no module owns
data/e.h:1: "../base/base.h" leaves its directory (name it from src/)
data/e.h:2: module data includes "attic/x.h", which is in no module of the table
data/e.h:3: include of a macro, HEADER, cannot be checked
data/e.h:4: <base/base.h> is internal; modules are included with quotes
models/m.c:3: models may include only <cgpipe/...>, not "base/base.h"
src/base/a.c:3: module base may not include "backend/x.h", of module backend
src/cellar/c.c:1: src/cellar/c.c is in no module of the table
src/op/op.h:3: module op may not include "model/model.h", of module model
src/plan/deep/p.c:3: module plan may not include <cgpipe/pipeline.h>, of module pipeline
src/schedule/s.c:2: module schedule may not include "plan/plan.h", of module plan'

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

if [ "$(circles "$example" | tr '\n' ' ')" != "a.c b.c " ]; then
    echo "the check itself is wrong: in the example tree cli/a.c and cli/b.c call each other, it printed"
    circles "$example"
    exit 1
fi
found=$(circles "$1")
if [ -n "$found" ]; then
    echo "$found"
    echo "FAILED: these files or directories of cli/ call each other in a circle"
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

# plan/plan.h has all parts of a plan. No header may include it, and only sources directly in
# src/plan may include it.
reached=$(cd "$1/src" && {
    grep -rlF --include='*.h' '"plan/plan.h"' .
    grep -rlF --include='*.c' '"plan/plan.h"' . | grep -v '^\./plan/[^/]*$'
})
if [ -n "$reached" ]; then
    echo "$reached"
    echo 'FAILED: these files include "plan/plan.h" (include the header of a part)'
    exit 1
fi

# ARCHITECTURE.md has the same rows. It may abbreviate a row that contains all modules, and it omits
# the rows of the plug-ins.
page=$(sed -nE 's/^\| `([a-z]+)\/` \|.*\| ([^|]*) \|$/\1: \2/p' "$1/ARCHITECTURE.md" | sed 's/: –$/:/; /: all of the above$/d' | sort)
table=$(echo "$TABLE" | sed '/^$/d; /^\(mpi\|cuda\|pipeline\|data\): /d' | sort)
if [ "$page" != "$table" ]; then
    echo "FAILED: the table of ARCHITECTURE.md (>) is not the table of modules (<)"
    diff <(echo "$table") <(echo "$page")
    exit 1
fi
echo "passed: $includes includes follow the table of modules, and nothing in cli/ calls in a circle"
echo "15 forbidden includes and a circle in an example tree were found"
