# shellcheck shell=bash disable=SC2154,SC2034
# What the demo finds in a cluster and what it may remove from it. The cluster may be somebody's: the CRD is
# removed only by the run that brought it, because all Proxies go with it.

cluster_id() { kubectl get namespace kube-system -o jsonpath='{.metadata.uid}'; }

# look_around : sets ours, whether what `install` applies is the demo's to remove: nothing of it is there, or
# an earlier run of the demo, kept or killed, has written down that it brought it.
look_around() {
    local found others=''
    found="$(found_installed)" || fail "the cluster cannot be asked what is installed in it: see above"
    ours=yes had_page=no had_lease=no
    if [[ -n "$found" ]]; then
        [[ -s "$run_dir/installed" && "$(<"$run_dir/installed")" == "$(cluster_id)" ]] || ours=no
    fi
    if [[ $ours == no ]]; then
        [[ "$found" != *customresourcedefinition* ]] || others="$(kubectl get px -A -o name)"
        [[ -z "$others" ]] ||
            fail "this cluster has Proxies already (${others%%$'\n'*}, ...), and the demo's operator would take them for its own: run it on a cluster without any"
        same_as_ours || fail "what is installed in this cluster is not what this checkout would install (see above), and the demo must not change it: install this one with 'make install', or run the demo on another cluster"
        say "    there before and stays: ${found//$'\n'/, }"
    fi
    if kubectl -n "$system" get lease egress-proxies-operator >/dev/null 2>&1; then had_lease=yes; fi
    if kubectl -n "$system" get pod probe-target >/dev/null 2>&1; then had_page=yes; fi
}

# Whether what `install` applies would change anything.
same_as_ours() { kubectl diff -f "$repo/crds" -f "$repo/deploy/base" >&2; }

found_installed() {
    kubectl get --ignore-not-found -o name crd/proxies.crawl.example.com namespace/egress-proxies "namespace/$system"
}

# take_down : all of it is tried, whatever fails before; false if anything did.
take_down() {
    local left=0
    delete_proxies || left=1
    stop "$run_dir" operator 15
    # A token for the API server, the API's token, a proxy's credentials.
    rm -f "$run_dir"/{kubeconfig,token,lease.json}
    if [[ $started_cluster == yes ]]; then
        "$here/down" && rm -f "$run_dir/installed" || left=1
    elif [[ $installed == yes ]]; then
        uninstall || left=1
    else
        if [[ $had_lease == no ]]; then
            kubectl -n "$system" delete lease egress-proxies-operator --ignore-not-found >/dev/null || left=1
        fi
        if [[ $had_page == no && -z "$page_url" ]]; then
            remove "$repo/dev/demo/probe-target.yaml" || left=1
        fi
    fi
    return $left
}

# While the operator still runs, so that no finalizer and no machine stays behind.
delete_proxies() {
    # installed: those that an earlier, killed run has left.
    if [[ $applied == yes || $installed == yes ]]; then
        kubectl -n default delete px "$proxy" --ignore-not-found --timeout=60s >/dev/null ||
            { say "    the Proxy could not be deleted: see above, and 'kubectl -n default describe px $proxy'" >&2 && false; }
    fi
}

# Proxies that somebody has applied meanwhile, after KEEP=1 for instance, go with the CRD, and nobody would be
# there to delete their machines.
uninstall() {
    local others
    others="$(kubectl get px -A -o name)" || return 1
    if [[ -n "$others" ]]; then
        say "    CRD, namespaces and rights stay: there are Proxies that are not the demo's (${others%%$'\n'*}, ...). No operator runs for them now: start one with 'make run', or delete them and run the demo again."
        return
    fi
    remove "$repo/dev/demo/probe-target.yaml" "$repo/deploy/base" "$repo/crds" && rm -f "$run_dir/installed"
}

remove() { # remove FILE-OR-FOLDER...
    kubectl delete --ignore-not-found --timeout=60s "${@/#/-f=}" >/dev/null
}
