# shellcheck shell=bash disable=SC2154,SC2034
# What the demo finds in a cluster and what it may remove from it. The cluster may be somebody's: the CRD is
# removed only by the run that brought it, because all Proxies go with it.

cluster_id() { kubectl get namespace kube-system -o jsonpath='{.metadata.uid}'; }

# look_around : sets ours, whether what `install` applies is the demo's to remove: nothing of it is there, or
# an earlier run of the demo, kept or killed, has written down that it brought it.
look_around() {
    local found others=''
    found="$(found_installed)" || fail "the cluster cannot be asked what is installed in it: see above"
    ours=yes had_page=no
    if [[ -n "$found" ]]; then
        [[ -s "$run_dir/installed" && "$(<"$run_dir/installed")" == "$(cluster_id)" ]] || ours=no
    fi
    if [[ $ours == no ]]; then
        [[ "$found" != *customresourcedefinition* ]] || others="$(kubectl get px -A -o name)"
        [[ -z "$others" ]] ||
            fail "this cluster has Proxies already (${others%%$'\n'*}, ...), and the demo's operator would take them for its own: run it on a cluster without any"
        say "    there before and stays: ${found//$'\n'/, }"
    fi
    if kubectl -n "$system" get pod probe-target >/dev/null 2>&1; then had_page=yes; fi
}

found_installed() {
    kubectl get --ignore-not-found -o name crd/proxies.crawl.example.com namespace/egress-proxies "namespace/$system"
}

take_down() {
    delete_proxies
    stop "$run_dir" operator 15
    # A token for the API server, the API's token, a proxy's credentials.
    rm -f "$run_dir"/{kubeconfig,token,lease.json}
    if [[ $started_cluster == yes ]]; then
        "$here/down" && rm -f "$run_dir/installed"
    elif [[ $installed == yes ]]; then
        uninstall && rm -f "$run_dir/installed"
    elif [[ $had_page == no && -z "$page_url" ]]; then
        kubectl delete --ignore-not-found --timeout=60s -f "$repo/dev/demo/probe-target.yaml" >/dev/null
    fi
}

# While the operator still runs, so that no finalizer and no machine stays behind.
delete_proxies() {
    # installed: those that an earlier, killed run has left.
    if [[ $applied == yes || $installed == yes ]]; then
        kubectl -n default delete px "$proxy" --ignore-not-found --timeout=60s >/dev/null 2>&1 || true
    fi
}

uninstall() {
    kubectl delete --ignore-not-found --timeout=60s -f "$repo/dev/demo/probe-target.yaml" -f "$repo/deploy/base" -f "$repo/crds" >/dev/null
}
