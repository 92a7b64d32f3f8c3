# shellcheck shell=bash
# What a local cluster asks of this machine and what it changes on it: said,
# checked and agreed to before anything is built, because a build takes twenty
# minutes. Sourced by `up`, the demo and the tests after settings.sh, steps.sh and
# node.sh; `packages` takes require_debian alone.
#
# Nothing here may change the machine.

require_debian() {
    local id='' version=''
    # shellcheck disable=SC1091
    if [[ -r /etc/os-release ]]; then
        id="$(. /etc/os-release && printf '%s' "${ID:-}")"
        version="$(. /etc/os-release && printf '%s' "${VERSION_ID:-}")"
    fi
    [[ "$id $version" == "debian 12" ]] ||
        fail "the local cluster is made from Debian 12 packages and this is ${id:-an unknown system} ${version}. Use a cluster of your own instead: see 'Another cluster' in deploy/local/README.md"
}

check_host() {
    local missing=() program
    [[ "$(uname -s)" == Linux ]] || fail "a node needs Linux: use a cluster of your own (see 'Another cluster' in deploy/local/README.md)"
    [[ $EUID -eq 0 ]] || fail "a node needs root: run the same with 'sudo -E env \"PATH=\$PATH\" ...' (plain sudo does not find cargo and go), or use a cluster of your own (see 'Another cluster' in deploy/local/README.md)"
    for program in curl:curl mount:mount unshare:util-linux nsenter:util-linux flock:util-linux awk:mawk; do
        command -v "${program%%:*}" >/dev/null || missing+=("${program##*:}")
    done
    ((${#missing[@]} == 0)) || fail "missing on this machine: run 'apt-get install ${missing[*]}'"
    # What was unpacked on Debian 12 is there; only to unpack takes its package lists.
    [[ -d "$PACKAGES_DIR" ]] || require_debian
    [[ -n "$(find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -print -quit)" ]] || fail "no cgroups in /sys/fs/cgroup: a node can't run here"
    local longest="$CONTAINERD_SOCKET.ttrpc"
    ((${#longest} <= 107)) || fail "the cache folder's path is $((${#longest} - 107)) bytes too long for a socket: set EPO_CACHE to a shorter one than $EPO_CACHE"
    check_link
    check_other_kubernetes
}

# kubernetes_rules : the first chain of a Kubernetes' that iptables has. Empty
# too where there is no iptables yet: `up` asks again when it has unpacked one.
kubernetes_rules() {
    { iptables-save; ip6tables-save; } 2>/dev/null |
        awk '/^:KUBE-/ && !found { found = substr($1, 2) } END { print found }' || true
}

# The chains have the same names in every Kubernetes: two on one machine write
# over each other's rules, and taking ours down would remove the other's.
check_other_kubernetes() {
    local chain
    if rules_are_ours; then return 0; fi
    chain="$(kubernetes_rules)"
    [[ -z "$chain" ]] || fail "another Kubernetes (k3s, kubeadm, ...) runs on this machine, or has left its iptables rules: there is a chain $chain. Two would break each other's Services. Use that one (CLUSTER=current make demo; see 'Another cluster' in deploy/local/README.md), or uninstall it and restart the machine"
}

host_changes() {
    cat <<END
The local Kubernetes changes on this machine, until it is taken down (make local-down):
  network interface $HOST_LINK with $HOST_ADDRESS, one for each pod, routes to $POD_RANGE and $SERVICE_RANGE
  iptables rules: kube-proxy's, and masquerading for the pods
  kernel settings: ${KERNEL_SETTINGS[*]//\//.} (put back afterwards)
  cgroups for the pods, and empty folders where missing: ${FIXED_FOLDERS[*]}
END
}

# agree : asks once, however many scripts there are below the first one.
agree() {
    local answer
    if [[ -t 0 && "${YES:-}" != 1 && -z "${CI:-}" ]]; then
        read -r -p "Go on? [Y/n] " answer
        [[ -z "$answer" || "$answer" == [yY]* ]] || fail "nothing was changed"
    fi
    export YES=1
}

cluster_answers() {
    [[ -r "$CLUSTER_KUBECONFIG" && -x "$NODE_DIR/bin/kubectl" ]] &&
        "$NODE_DIR/bin/kubectl" --kubeconfig "$CLUSTER_KUBECONFIG" get --raw /readyz >/dev/null 2>&1
}
