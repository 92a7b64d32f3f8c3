# shellcheck shell=bash
# The node: containerd, kubelet, kube-proxy and the name server, and what they need of the host.
#
# containerd and the kubelet run in a mount namespace of their own. Every
# mount they make (image layers, volumes, network namespaces) is in there and
# nowhere else, so all of it is gone when the last process in it is, however
# untidily it ended; and the fixed folders in /run and /var that they insist on
# are folders of ours in there.
#
# Whatever is changed on the host itself is written down in $HOST_RECORD
# before it is changed, for `down` to put back.

HOST_RECORD="$CLUSTER_DIR/host"

# rules_are_ours : whether the KUBE- chains of this machine's iptables are this
# cluster's. A restart of the machine takes the rules and leaves the record, and
# then they may be another Kubernetes': hence the record of the start. The
# interface is no sign, since somebody may have removed it by hand.
rules_are_ours() {
    [[ -e "$HOST_RECORD/link" && -r "$HOST_RECORD/boot" && "$(<"$HOST_RECORD/boot")" == "$(boot)" ]]
}
boot() { cat /proc/sys/kernel/random/boot_id; }

# Only with our record of it is the interface ours to use and to remove.
check_link() {
    [[ -e "$HOST_RECORD/link" || ! -e "/sys/class/net/$HOST_LINK" ]] ||
        fail "the network interface $HOST_LINK belongs to another local cluster (with another EPO_CACHE): take that one down first ('EPO_CACHE=... make local-down'); if its cache folder is gone, restart this machine, which takes its interface and its iptables rules away"
}

# Folders that containerd and the kubelet use whatever they are told.
FIXED_FOLDERS=(/run/containerd /var/lib/cni /var/lib/kubelet /var/log/containers /var/log/pods)

# Kernel settings that Kubernetes sets on its own, and the one that pods need
# to reach anything.
KERNEL_SETTINGS=(
    net/ipv4/ip_forward vm/overcommit_memory vm/panic_on_oom kernel/panic
    kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes
)

# Rules of our own, beside kube-proxy's: pods reach the world under the host's
# address, and a firewall that forwards nothing (Docker's) lets them.
RULE_COMMENT=(-m comment --comment 'egress-proxies local cluster')
firewall_rules() { # a line of table, chain and match each
    printf '%s\n' "nat POSTROUTING -s $POD_RANGE ! -d $POD_RANGE -j MASQUERADE" \
        "filter FORWARD -s $POD_RANGE -j ACCEPT" "filter FORWARD -d $POD_RANGE -j ACCEPT"
}

# each_rule -A|-D|-C : true when it is so for every rule.
each_rule() {
    local table chain rest result=0
    while read -r table chain rest; do
        # shellcheck disable=SC2086
        iptables -w -t "$table" "$1" "$chain" $rest "${RULE_COMMENT[@]}" 2>/dev/null || result=1
    done < <(firewall_rules)
    return $result
}

prepare_host() {
    local name folder
    mkdir -p "$HOST_RECORD"
    if [[ ! -e "$HOST_RECORD/kernel-settings" ]]; then
        for name in "${KERNEL_SETTINGS[@]}"; do
            if [[ -r "/proc/sys/$name" ]]; then printf '%s %s\n' "$name" "$(<"/proc/sys/$name")"; fi
        done >"$HOST_RECORD/kernel-settings.part"
        mv "$HOST_RECORD/kernel-settings.part" "$HOST_RECORD/kernel-settings"
    fi
    printf '1\n' >/proc/sys/net/ipv4/ip_forward

    for folder in "${FIXED_FOLDERS[@]}"; do
        [[ -d "$folder" ]] && continue
        printf '%s\n' "$folder" >>"$HOST_RECORD/folders"
        mkdir -p "$folder"
    done

    if [[ ! -e "$HOST_RECORD/link" ]]; then
        check_link
        printf '%s\n' "$HOST_LINK" >"$HOST_RECORD/link"
    fi
    boot >"$HOST_RECORD/boot"
    # An empty bridge is the one link without a wire that every kernel has.
    ip link show "$HOST_LINK" >/dev/null 2>&1 || ip link add "$HOST_LINK" type bridge
    ip address replace "$HOST_ADDRESS/32" dev "$HOST_LINK"
    ip link set "$HOST_LINK" up
    # Without a route of its own, a Service needs a default route to be reached from here.
    ip route replace "$SERVICE_RANGE" dev "$HOST_LINK"
    each_rule -C || {
        each_rule -D || true
        each_rule -A || fail "iptables refuses a rule: $(iptables -w -t nat -S 2>&1 | tail -n 1)"
    }
}

# start_mounts : the process that holds the mount namespace.
start_mounts() {
    local folder script='mount --make-rshared /'
    for folder in "${FIXED_FOLDERS[@]}"; do
        mkdir -p "$CLUSTER_DIR/fixed$folder"
        script+="; mount --bind '$CLUSTER_DIR/fixed$folder' '$folder'"
    done
    start "$CLUSTER_DIR" mounts unshare --mount --propagation private \
        /bin/sh -ec "$script; touch '$CLUSTER_DIR/mounts-ready'; exec sleep infinity"
    await "$CLUSTER_DIR" mounts 10 test -e "$CLUSTER_DIR/mounts-ready"
}

# start_inside NAME COMMAND... : in that mount namespace.
start_inside() {
    local name="$1" holder
    shift
    read -r holder _ <"$CLUSTER_DIR/pids/mounts"
    start "$CLUSTER_DIR" "$name" nsenter "--mount=/proc/$holder/ns/mnt" "$@"
}

start_containerd() {
    local snapshotter=overlayfs
    # An overlay can't lie on an overlay: the case inside a container.
    [[ "$(stat -fc %T "$CLUSTER_DIR")" == overlayfs ]] && snapshotter=native
    mkdir -p "$CLUSTER_DIR/cni"
    cat >"$CLUSTER_DIR/containerd.toml" <<END
version = 2
root = "$CLUSTER_DIR/containerd/root"
state = "$CLUSTER_DIR/containerd/state"
oom_score = 0

[grpc]
  address = "$CONTAINERD_SOCKET"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$PACKAGES_DIR/node/usr/lib/cni"
    conf_dir = "$CLUSTER_DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$PACKAGES_DIR/bin/runc"
        SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "$CLUSTER_DIR/containerd/opt"
END
    # A wire of its own for each pod (ptp), not a shared bridge: all traffic
    # then passes the host's rules, also from a pod through a Service to its
    # neighbour, which on a bridge needs a kernel module.
    cat >"$CLUSTER_DIR/cni/pods.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": {
  "type": "host-local", "dataDir": "$CLUSTER_DIR/pod-addresses", "routes": [{"dst": "0.0.0.0/0"}],
  "ranges": [[{"subnet": "$POD_RANGE", "rangeStart": "${POD_RANGE%.*.*}.1.1", "gateway": "$HOST_ADDRESS"}]]}}]}
END
    start_inside containerd "$PACKAGES_DIR/bin/containerd" --config "$CLUSTER_DIR/containerd.toml"
    await "$CLUSTER_DIR" containerd 30 containers version
}

# containers ARGUMENT... : containerd's own client, on the kubelet's images.
containers() { ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io "$@"; }

import_images() {
    local archive
    for archive in "$IMAGES_DIR"/*.tar; do containers images import "$archive" >/dev/null; done
}

start_kubelet() {
    write_kubeconfig "$CLUSTER_DIR/secrets/kubelet.kubeconfig" "$CLUSTER_DIR" "system:node:$NODE_NAME" "$HOST_ADDRESS" "$API_SERVER_PORT"
    cat >"$CLUSTER_DIR/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $HOST_ADDRESS
healthzPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $CLUSTER_DIR/secrets/kubelet-client.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
# kube-proxy makes the chains that it needs, and removes them in the end; the
# kubelet's would stay.
makeIPTablesUtilChains: false
clusterDNS: [$HOST_ADDRESS]
clusterDomain: cluster.local
# A developer's disk may be nearly full: that is no reason to evict anything.
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
# The images can't be pulled again: never collect them.
imageGCHighThresholdPercent: 100
podLogsDir: /var/log/pods
volumePluginDir: $CLUSTER_DIR/volume-plugins
registerWithTaints: []
END
    start_inside kubelet "$NODE_DIR/bin/kubelet" --config "$CLUSTER_DIR/kubelet.yaml" \
        --kubeconfig "$CLUSTER_DIR/secrets/kubelet.kubeconfig" --root-dir "$CLUSTER_DIR/kubelet" \
        --cert-dir "$CLUSTER_DIR/kubelet-certificates" --hostname-override "$NODE_NAME" --node-ip "$HOST_ADDRESS"
}

start_kube_proxy() {
    write_kubeconfig "$CLUSTER_DIR/secrets/kube-proxy.kubeconfig" "$CLUSTER_DIR" system:kube-proxy "$HOST_ADDRESS" "$API_SERVER_PORT"
    cat >"$CLUSTER_DIR/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: $POD_RANGE
hostnameOverride: $NODE_NAME
healthzBindAddress: $HOST_ADDRESS:10256
metricsBindAddress: $HOST_ADDRESS:10249
clientConnection: {kubeconfig: $CLUSTER_DIR/secrets/kube-proxy.kubeconfig}
# Leave the host's own kernel settings alone.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {localhostNodePorts: false, minSyncPeriod: 100ms}
END
    start "$CLUSTER_DIR" kube-proxy "$NODE_DIR/bin/kube-proxy" --config "$CLUSTER_DIR/kube-proxy.yaml"
}

# The name server is a process of the host, not a pod: pods find it before the
# first of them runs, and it asks whom the host asks, also at a loopback address.
start_dns() {
    write_kubeconfig "$CLUSTER_DIR/secrets/dns.kubeconfig" "$CLUSTER_DIR" dns "$HOST_ADDRESS" "$API_SERVER_PORT"
    kubectl --kubeconfig "$CLUSTER_KUBECONFIG" apply -f - >/dev/null <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dns}]
END
    local others=''
    grep -q '^nameserver' /etc/resolv.conf 2>/dev/null && others='forward . /etc/resolv.conf'
    cat >"$CLUSTER_DIR/Corefile" <<END
.:53 {
    bind $HOST_ADDRESS
    errors
    ready $HOST_ADDRESS:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig $CLUSTER_DIR/secrets/dns.kubeconfig
        ttl 5
        fallthrough in-addr.arpa ip6.arpa
    }
    cache 5
    $others
}
END
    start "$CLUSTER_DIR" dns "$NODE_DIR/bin/coredns" -conf "$CLUSTER_DIR/Corefile"
}
