#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Check the external functions that the library calls. A function must either be wrapped, so that
# test_allocations can make it fail, or be listed here because it allocates no memory. If the
# library calls a function that is neither wrapped nor listed, this test fails.
#
#     bash test_imports.sh SOURCE_DIR BUILD_DIR
set -u
source_dir=$1
build_dir=$2
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# Functions that allocate no memory, or free it before they return. The entries are extended regular
# expressions for whole names.
harmless='
    bcmp (mem|str)(chr|cmp|cpy|cspn|len|move|ncmp|rchr|set|spn|tod|tol|toll|toull) strerror qsort getenv sysconf getpid geteuid gethostname confstr
    v?snprintf fprintf fscanf sscanf fgets ferror fputs fputc fwrite puts stderr
    (ceil|cos|sin|sincos|erf|exp|exp2|expm1|floor|fmax|fmin|fmod|frexp|ldexp|log|log10|log1p|log2|pow|round|sqrt|tanh)f?
    close fcntl flock fstat fstatat fsync kill lstat madvise mkdir mkdirat open openat pread pwrite raise read readlink readlinkat
    rename renameat renameat2 rmdir stat symlink symlinkat unlink unlinkat write dirfd readdir ftruncate
    clock_gettime nanosleep time sched_getaffinity sched_yield syscall
    pthread_(cond|condattr|mutex)_[a-z]+ pthread_(detach|join|once|self|equal|getaffinity_np|setaffinity_np)
    omp_(get|set)_[a-z_]+ GOMP_parallel
    strcasecmp fnmatch llround longjmp bsearch newlocale uselocale strstr
    dlopen dlclose dlsym dladdr dlerror getauxval secure_getenv
    json_[a-z_]+ EVP_[A-Za-z0-9_]+ png_[a-z0-9_]+ jpeg_[A-Za-z_]+'
# Some listed functions may allocate. GOMP_parallel starts threads at its first use; if that fails,
# libgomp ends the process itself. newlocale() returns a constant for "C". fnmatch() allocates only
# for names of over 1,000 bytes. If dlopen() runs out of memory, the plug-in is left out, with that
# reason.
#
# The last line of the list contains functions of other libraries. shortage.c makes allocations
# inside jansson and libcrypto fail. libpng allocates through cgpipe's functions. libjpeg allocates
# by itself, and its out-of-memory message becomes CGP_ENOMEM.

nm -u "$build_dir/libcgpipe.a" "$build_dir/libcgpipe_data.a" | awk '$1 == "U" { print $2 }' | grep -vE '^(_|cgp_)' | LC_ALL=C sort -u \
    >"$temp/taken"
count=$(wc -l <"$temp/taken")
if [ "$count" -lt 50 ]; then
    echo "test_imports: $build_dir/libcgpipe.a takes only $count functions from outside: was it read?"
    exit 1
fi
tr -s ' ' '\n' <<<"$harmless" | grep . >"$temp/harmless"
grep -vxEf "$temp/harmless" "$temp/taken" | grep -vxFf "$source_dir/tests/support/wrapped.txt" >"$temp/new"
while IFS= read -r name; do
    echo "not ok: $name is new (if it asks for memory, wrap it: tests/support/wrapped.txt and shortage.c; else list it here)"
done <"$temp/new"
[ ! -s "$temp/new" ] && echo "ok: $count functions from outside, all known"
