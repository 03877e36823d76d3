# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# hosts.sh -- functions for scripts that start ranks on several hosts. The hosts are network
# namespaces of this machine. Source this file before mpirun.sh.
#
#     enter_namespaces SCRIPT WORDS...    run the script again in its own namespaces; skip the test
#                                         without permission to create them
#     make_hosts N [RATE]                 host1 .. hostN: each has a name, an address, a network
#                                         of RATE (1gbit), if given, and a core if there are N
#     on_host I COMMAND...                run a command on one host
#     run_on_hosts RANKS COMMAND...       run ranks on all hosts; each host has consecutive ranks
#
#     host1       host2       host3
#     10.77.0.1   10.77.0.2   10.77.0.3     one network namespace each, `tc tbf` on egress
#         └───────────┴───────────┘         a bridge
#
# No cleanup is needed. The script is process 1 of a pid namespace. When the script ends, even by
# SIGKILL, the kernel kills all other processes of the namespace. The networks have no names outside
# the namespace and disappear with the last process.

namespaces=(unshare --mount --net --pid --fork --kill-child --mount-proc)
[ "$(id -u)" = 0 ] || namespaces=(unshare --map-root-user "${namespaces[@]:1}")

enter_namespaces() { # SCRIPT WORDS...
    if [ -n "${CGP_TEST_NAMESPACES-}" ]; then
        mount -t tmpfs none /run # makes names of namespaces private to this script
        ip link set lo up
        return
    fi
    # Try those parts of make_hosts that need a permission or a kernel module.
    if ! timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "${namespaces[@]}" sh -ec '
        mount -t tmpfs none /run
        ip link add bridge type bridge
        ip netns add probe
        ip link add port type veth peer name eth0 netns probe
        ip netns exec probe unshare --uts sh -ec "hostname probe; tc qdisc add dev eth0 root tbf rate 1gbit burst 64kb latency 50ms"'; then
        echo "skip: no right to make network namespaces here (or no ip, tc, unshare, bridge, tbf)"
        exit 77
    fi
    CGP_TEST_NAMESPACES=1 exec "${namespaces[@]}" bash "$@"
}

make_hosts() { # N [RATE]
    local i bind=""
    needs_open_mpi
    n_hosts=$1
    ip link add bridge type bridge
    ip link set bridge up
    for i in $(seq "$n_hosts"); do
        ip netns add "host$i"
        ip link add "port$i" type veth peer name eth0 netns "host$i"
        ip link set "port$i" master bridge up
        ip -n "host$i" address add "10.77.0.$i/24" dev eth0
        ip -n "host$i" link set lo up
        ip -n "host$i" link set eth0 up
        [ -z "${2-}" ] || tc -n "host$i" qdisc add dev eth0 root tbf rate "$2" burst 128kb latency 50ms
    done
    # shellcheck disable=SC2016 # variables of the script
    [ "$n_hosts" -gt "$(nproc)" ] || bind='taskset -c $core'
    # Write two scripts. `on I COMMAND...` runs a command on host I. mpirun calls `agent ADDRESS
    # COMMAND...` to run a command on another host.
    cat >"$work/on" <<ON
#!/bin/sh
host=host\$1 core=\$((\$1 - 1))
shift
exec ip netns exec "\$host" unshare --uts $bind sh -c 'hostname "\$1"; shift; exec "\$@"' sh "\$host" "\$@"
ON
    cat >"$work/agent" <<AGENT
#!/bin/sh
host=\${1##*.}
shift
exec "$work/on" "\$host" sh -c "\$*"
AGENT
    chmod +x "$work/on" "$work/agent"
}

on_host() { # I COMMAND...
    "$work/on" "$@"
}

run_on_hosts() { # RANKS COMMAND...
    local n=$1 i list=""
    shift
    for i in $(seq "$n_hosts"); do list+=${list:+,}10.77.0.$i:$(((n + n_hosts - 1) / n_hosts)); done
    on_host 1 timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$mpirun" -n "$n" -H "$list" --mca plm_rsh_agent "$work/agent" \
        --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "$@"
}
