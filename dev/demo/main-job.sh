# shellcheck shell=bash disable=SC2154
# The steps of the main job; dev/demo/run puts them in order. Each shows the command that a user would type
# and what came back, and fails with the next place to look.

proxy=proxy-kubernetes-sample
lease_file="$run_dir/lease.json"

show() { # show COMMAND... : prints it, runs it, indents what it says
    say "    \$ $*"
    "$@" 2>&1 | sed 's/^/      /'
}

json() { # json FILE PATTERN : the value of a top-level-ish string field, without needing jq
    grep -o "\"$2\":\"[^\"]*\"" "$1" | head -n 1 | cut -d'"' -f4
}

install() {
    if [[ $ours == yes ]]; then
        cluster_id >"$run_dir/installed"
        installed=yes
    fi
    kubectl apply -f "$repo/crds" >/dev/null
    kubectl apply -f "$repo/deploy/base" >/dev/null
    kubectl wait --for=condition=Established crd/proxies.crawl.example.com --timeout=30s >/dev/null
}

start_page() {
    page="$page_url"
    if [[ -n "$page" ]]; then
        say "    $page"
        return
    fi
    kubectl apply -f "$repo/dev/demo/probe-target.yaml" >/dev/null
    kubectl -n "$system" wait --for=condition=Ready pod/probe-target --timeout=60s >/dev/null
    page="http://$(kubectl -n "$system" get service probe-target -o jsonpath='{.spec.clusterIP}')/"
}

# The operator gets the rights of its own ServiceAccount, not those of the administrator.
operator_kubeconfig() {
    local server ca token
    server="$(kubectl config view --minify --raw -o jsonpath='{.clusters[0].cluster.server}')"
    ca="$(kubectl config view --minify --raw --flatten -o jsonpath='{.clusters[0].cluster.certificate-authority-data}')"
    token="$(kubectl -n "$system" create token egress-proxies-operator --duration=2h)"
    cat <<CONFIG
apiVersion: v1
kind: Config
current-context: operator
contexts: [{ name: operator, context: { cluster: local, user: operator } }]
clusters: [{ name: local, cluster: { server: "$server", certificate-authority-data: "$ca" } }]
users: [{ name: operator, user: { token: "$token" } }]
CONFIG
}

providers_config() {
    sed -e "s|https://example.com/|${page//&/\\&}|" -e "s|10.0.0.0/8|${ADDRESS_CIDR:-$POD_RANGE}|" \
        "$repo/deploy/samples/providers.yaml"
}

start_operator() {
    (umask 077 && operator_kubeconfig >"$run_dir/kubeconfig" && od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$run_dir/token")
    providers_config >"$run_dir/providers.yaml"
    cp "$EPO_CACHE/providers/kubernetes.wasm" "$run_dir/kubernetes.wasm"
    : >"$run_dir/log/operator.log"
    has_log=yes
    KUBECONFIG="$run_dir/kubeconfig" DISCOVERY_TOKEN="$(cat "$run_dir/token")" start "$run_dir" operator \
        "$CARGO_TARGET_DIR/debug/egress-proxies-operator" run --providers-config "$run_dir/providers.yaml" \
        --discovery-address 127.0.0.1:8090 --metrics-address 127.0.0.1:8080 --probe-address 127.0.0.1:8081
    await "$run_dir" operator 60 curl -fsS http://127.0.0.1:8081/readyz
}

apply_proxy() {
    applied=yes
    show kubectl apply -f "$repo/deploy/samples/proxy-kubernetes.yaml"
    kubectl -n default wait --for=condition=Ready "px/$proxy" --timeout="${ready_within}s" >/dev/null || {
        kubectl -n default get px "$proxy" -o yaml >&2
        fail "the Proxy did not become Ready: its conditions above say why"
    }
    show kubectl -n default get px
    show kubectl -n egress-proxies get pods
}

call() { # call METHOD PATH [BODY]
    curl -fsS -X "$1" "$api$2" -H "Authorization: Bearer $(cat "$run_dir/token")" ${3:+-H 'Content-Type: application/json' -d "$3"}
}

list_proxies() {
    local answer
    answer="$(call GET '/v1/proxies?attr.geo=local&healthy=true')"
    say "      $answer"
    grep -q "\"default/$proxy\"" <<<"$answer" || fail "the list lacks default/$proxy"
}

lease_proxy() {
    local body='{"selector":{"geo":"local"},"ttlSeconds":300,"target":"example.com"}'
    say "    \$ curl -XPOST $api/v1/leases -H \"Authorization: Bearer \$(cat $run_dir/token)\" -d '$body'"
    (umask 077 && call POST /v1/leases "$body" >"$lease_file")
    say "      $(cat "$lease_file")"
    lease="$(json "$lease_file" leaseID)"
    url="$(json "$lease_file" url)"
    [[ -n "$lease" && -n "$url" ]] || fail "the lease has no leaseID or url"
}

fetch_page() {
    local answer
    say "    \$ curl -x $url $page"
    answer="$(curl -fsS --max-time 20 --noproxy '' -x "$url" "$page")"
    say "      $(head -n 1 <<<"$answer" | cut -c1-100)"
    [[ -n "$page_url" || "$answer" == ok ]] || fail "the page said something else than ok"
}

report_and_release() {
    call POST "/v1/leases/$lease/report" '{"result":"ok"}'
    call DELETE "/v1/leases/$lease"
    say "      reported ok, released: both 204"
}

delete_proxy() {
    local uid left
    uid="$(kubectl -n default get px "$proxy" -o jsonpath='{.metadata.uid}')"
    show kubectl -n default delete px "$proxy" --timeout=90s
    left="$(kubectl -n egress-proxies get "pod/px-$uid" --ignore-not-found -o name)"
    [[ -z "$left" ]] || fail "still there: $left"
    say "      no Proxy, no pod"
}
