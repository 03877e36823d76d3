# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# mpirun.sh -- for scripts that start ranks: needs_mpi BUILD_DIR, needs_open_mpi, run_ranks N
# COMMAND..., check NAME CONDITION..., make_text, and $work, a directory of the script's own;
# $plugins has the plug-in, which the program finds by itself. The MPI is the one of the build;
# under a sanitizer, only its own code is left alone.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
suppressions=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

cached() { # BUILD_DIR VARIABLE
    sed -n "s/^$2:[^=]*=//p" "$1/CMakeCache.txt"
}

# Skip the test where the plug-in or mpirun is missing.
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
        export UCX_LOG_LEVEL=error # it warns of releases that nobody waits for at the end
    fi
    case $(cached "$1" CGP_SANITIZE) in
    *address*) # stacks through the C library, too
        export ASAN_OPTIONS=fast_unwind_on_malloc=0 LSAN_OPTIONS=suppressions=$suppressions/lsan.supp:print_suppressions=0 ;;
    thread) export TSAN_OPTIONS=suppressions=$suppressions/tsan.supp ;;
    esac
    # As root, more ranks than cores, no fixed cores: what a test machine needs of Open MPI.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_orte_tmpdir_base=$work
    if ! timeout 300 "$mpirun" -n 2 true; then
        echo "skip: mpirun starts no processes here"
        exit 77
    fi
}

# What only Open MPI's mpirun has: options, variables of ranks. After needs_mpi.
needs_open_mpi() {
    [ "$mpi" = "Open MPI" ] || { echo "skip: for Open MPI's mpirun, not $mpi's"; exit 77; }
}

run_ranks() { # N COMMAND...
    local n=$1
    shift
    timeout 300 "$mpirun" -n "$n" "$@"
}

# --- what every script needs ---

# Run a command; note a failure in $failed, with the ends of what ran last.
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
