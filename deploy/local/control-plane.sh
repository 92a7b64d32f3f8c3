# shellcheck shell=bash
# etcd and kube-apiserver in a folder of their own: used by `up` for the
# cluster and by `api-server-only` for tests. Several may run side by side.
#
# etcd has no port: it listens on a socket inside the folder, which only its
# owner can enter, because whoever can write to etcd owns the cluster.

build_keys() { # build_keys FOLDER
    command -v go >/dev/null || fail "Go is missing: install Go 1.26 or newer (https://go.dev/dl) and put its bin folder on PATH"
    (cd "$here" && CGO_ENABLED=0 go build -buildvcs=false -o "$1/keys" ./keys)
}

random_token() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# make_secrets DIR : the keys and tokens, once.
make_secrets() {
    local dir="$1/secrets" user group
    [[ -e "$dir/tokens.csv" ]] && return
    mkdir -p "$dir"
    chmod 700 "$1" "$dir"
    if [[ ! -x "$KEYS_DIR/keys" ]]; then once "$KEYS_DIR" build_keys; fi
    rm -f "$dir"/service-account.* "$dir"/kubelet-client.* # of an attempt that Ctrl-C ended
    "$KEYS_DIR/keys" "$dir"
    while read -r user group; do
        printf '%s,%s,%s,"%s"\n' "$(random_token)" "$user" "$user" "$group"
    done >"$dir/tokens.part" <<END
admin system:masters
system:kube-controller-manager
system:kube-scheduler
system:kube-proxy
dns
system:node:$NODE_NAME system:nodes
END
    mv "$dir/tokens.part" "$dir/tokens.csv"
}

# start_etcd DIR BIN
start_etcd() {
    # No fsync: the data is worth nothing after a crash of the machine, and a
    # test's object should not wait for a disk.
    start "$1" etcd "$2/etcd" --data-dir "$1/etcd" --unsafe-no-fsync --log-level warn \
        --listen-client-urls "unix://$1/etcd.sock" --advertise-client-urls http://localhost:2379 \
        --listen-peer-urls "unix://$1/etcd-peer.sock"
}

# start_api_server DIR BIN ADDRESS PORT [FLAG...]
start_api_server() {
    local dir="$1" bin="$2" address="$3" port="$4"
    shift 4
    # Its certificate it makes itself, in --cert-dir.
    start "$dir" kube-apiserver "$bin/kube-apiserver" --etcd-servers "unix://$dir/etcd.sock" \
        --cert-dir "$dir/api" --bind-address "$address" --advertise-address "$address" --secure-port "$port" \
        --service-account-issuer https://kubernetes.default.svc \
        --service-account-key-file "$dir/secrets/service-account.pub" \
        --service-account-signing-key-file "$dir/secrets/service-account.key" \
        --token-auth-file "$dir/secrets/tokens.csv" --authorization-mode Node,RBAC \
        --service-cluster-ip-range "$SERVICE_RANGE" --allow-privileged "$@"
}

# await_api_server DIR BIN ADDRESS PORT : until it is ready; leaves the
# administrator's kubeconfig in DIR/kubeconfig.
await_api_server() {
    await "$1" kube-apiserver 60 test -s "$1/api/apiserver.crt"
    write_kubeconfig "$1/kubeconfig" "$1" admin "$3" "$4"
    # Through the kubeconfig: this proves the certificate and the token too,
    # and that it is no other server which answers on this port.
    await "$1" kube-apiserver 60 "$2/kubectl" --kubeconfig "$1/kubeconfig" get --raw /readyz
}

# write_kubeconfig FILE DIR USER ADDRESS PORT
write_kubeconfig() {
    local token
    token="$(awk -F, -v user="$3" '$2 == user { print $1 }' "$2/secrets/tokens.csv")"
    [[ -n "$token" ]] || fail "no token for $3 in $2/secrets/tokens.csv"
    (
        umask 077
        cat >"$1.part" <<END
apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: https://$4:$5
    certificate-authority-data: $(base64 -w0 "$2/api/apiserver.crt")
users:
- name: $3
  user:
    token: $token
contexts:
- name: local
  context: {cluster: local, user: $3}
current-context: local
END
    )
    mv "$1.part" "$1"
}
