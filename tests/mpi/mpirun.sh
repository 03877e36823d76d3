# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# mpirun.sh -- functions for scripts that start ranks: needs_mpi BUILD_DIR, needs_open_mpi,
# run_ranks N COMMAND..., check NAME CONDITION... and make_text.
#
# $work is a temporary directory for the script. $plugins contains the MPI plug-in, which the
# program finds by itself. The scripts use the MPI library of the build. Under a sanitizer, only
# errors inside the MPI library are suppressed.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
suppressions=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Print the value of CGP_TEST_SCALE for a program on several ranks. It is FACTOR times the current
# value, or FACTOR if the variable is unset.
scale() { # FACTOR
    awk -v factor="$1" -v given="${CGP_TEST_SCALE:-1}" 'BEGIN {print factor * given}'
}

cached() { # BUILD_DIR VARIABLE
    sed -n "s/^$2:[^=]*=//p" "$1/CMakeCache.txt"
}

# Skip the test if the MPI plug-in or mpirun is missing.
needs_mpi() { # BUILD_DIR
    plugins=$(cd "$1" && pwd)/plugins
    unset CGP_PLUGIN_PATH
    mpirun=$(cached "$1" MPIEXEC_EXECUTABLE)
    if [ ! -e "$plugins/libcgpipe-mpi.so" ] || ! command -v "$mpirun" >/dev/null; then
        echo "skip: no MPI"
        exit 77
    fi
    mpi="Open MPI"
    if "$mpirun" --version 2>&1 | grep -q HYDRA; then
        mpi=MPICH
        export UCX_LOG_LEVEL=error # hides UCX's warning about pending releases at the end
    fi
    case $(cached "$1" CGP_SANITIZE) in
    *address*) # unwind stacks through the C library too
        export ASAN_OPTIONS=fast_unwind_on_malloc=0 LSAN_OPTIONS=suppressions=$suppressions/lsan.supp:print_suppressions=0 ;;
    thread) export TSAN_OPTIONS=suppressions=$suppressions/tsan.supp ;;
    esac
    # Let Open MPI run as root, with more ranks than cores, and without binding ranks to cores,
    # because test machines need this.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_orte_tmpdir_base=$work
    if ! timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$mpirun" -n 2 true; then
        echo "skip: mpirun starts no processes here"
        exit 77
    fi
}

# Skip the test unless mpirun belongs to Open MPI, because the test needs the options and
# environment variables of Open MPI. Call this function after needs_mpi.
needs_open_mpi() {
    [ "$mpi" = "Open MPI" ] || { echo "skip: for Open MPI's mpirun, not $mpi's"; exit 77; }
}

run_ranks() { # N COMMAND...
    local n=$1
    shift
    timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$mpirun" -n "$n" "$@"
}

# --- for every script ---

# Run a command that tests a condition. If it fails, set $failed and print the end of the last
# output.
failed=0
check() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then echo "ok: $name"; else
        echo "not ok: $name"
        failed=1
        tail -n 20 "$work/out" "$work/err" "$work/diagnose" 2>/dev/null
    fi
}

# Make $work/text.txt.
make_text() {
    for i in $(seq 40); do echo "line $i of a text that is long enough, $((i * 7919 % 101))"; done >"$work/text.txt"
}
