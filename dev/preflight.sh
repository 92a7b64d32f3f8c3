# shellcheck shell=bash disable=SC2154
# What the demo and the tests need of this machine, checked before anything is built: what is missing is
# said all at once and in the first seconds, not after a build of twenty minutes.
#
# Must never change the machine. Sourced after deploy/local/settings.sh and steps.sh, with $repo set.
source "$here/node.sh"
source "$here/host.sh"

need() { # need COMMAND WHAT-TO-DO
    command -v "$1" >/dev/null || missing+=("$1: $2")
}

at_least() { # at_least VERSION WANTED
    [[ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" == "$2" ]]
}

# The version that would build here: a newer Go is fetched by Go itself and a newer Rust by rustup, where
# they may; asking makes them do it now.
check_go() {
    local wanted found
    wanted="$(awk '$1 == "go" { print $2 }' "$here/node/go.mod")"
    if ! found="$(cd "$here/node" && go env GOVERSION 2>&1)"; then
        missing+=("go: Go $wanted or newer from https://go.dev/dl; the one here says: ${found##*$'\n'}")
    elif ! at_least "${found##*go}" "$wanted"; then
        missing+=("go: Go $wanted or newer from https://go.dev/dl; the one here is ${found##*$'\n'}")
    fi
}

check_rust() {
    local wanted found
    say "    asking for the Rust of rust-toolchain.toml: where it is missing, rustup downloads it now (about 200 MB)"
    wanted="$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$repo/Cargo.toml")"
    if ! found="$(cd "$repo" && cargo --version 2>&1)"; then
        missing+=("cargo: Rust $wanted from https://rustup.rs; the one here says: ${found##*$'\n'}")
    else
        found="$(sed -n 's/^cargo \([0-9.]*\).*/\1/p' <<<"$found")"
        at_least "$found" "$wanted" || missing+=("cargo: Rust $wanted from https://rustup.rs; the one here is $found")
    fi
}

# Room for what is not built yet. Go's and Cargo's own caches are counted in: mostly they are on the same disk.
check_disk() { # check_disk [--no-node]
    local wanted=1 free folder="$EPO_CACHE"
    if [[ "${1:-}" != --no-node && ! -x "$NODE_DIR/bin/kubernetes" ]]; then wanted=$((wanted + 7)); fi
    [[ -d "$CARGO_TARGET_DIR/debug/deps" ]] || wanted=$((wanted + 7))
    until [[ -d "$folder" ]]; do folder="$(dirname "$folder")"; done
    free="$(df --output=avail -BM "$folder" | tail -n 1 | tr -dc 0-9)"
    ((free >= wanted * 1024)) ||
        missing+=("disk: $wanted GiB for what has to be built, and $folder has $((free / 1024)) GiB free; make room, or set EPO_CACHE to a folder on another disk")
}

check_tools() { # check_tools [--no-node] : to build with
    missing=()
    need cc "apt-get install gcc libc6-dev"
    need git "apt-get install git"
    need curl "apt-get install curl"
    if ! command -v cargo >/dev/null; then need cargo "install Rust from https://rustup.rs"; else check_rust; fi
    if [[ "${1:-}" != --no-node ]]; then
        need dpkg "Debian 12 is needed here: its packages are unpacked for the node"
        if ! command -v go >/dev/null; then need go "install Go from https://go.dev/dl"; else check_go; fi
    fi
    check_disk "$@"
    ((${#missing[@]} == 0)) && return
    printf 'error: missing on this machine:\n' >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 1
}

# build_plan [--no-node] : a line for each build, with an estimate.
build_plan() {
    local kubernetes="built already" rust="what changed, about 30 s"
    [[ -x "$NODE_DIR/bin/kubernetes" ]] || kubernetes="about 12 min on 2 cores, once"
    [[ -d "$CARGO_TARGET_DIR/debug/deps" ]] || rust="about 10 min on 2 cores, once"
    say "Builds (kept in $EPO_CACHE, and what they are made from in Go's and Cargo's own caches):"
    if [[ "${1:-}" == --no-node ]]; then
        say "  Rust: the operator and its provider component: $rust"
    else
        say "  Go:   Kubernetes $KUBERNETES_VERSION: $kubernetes"
        say "  Rust: the operator and its provider component: $rust"
        say "  the two side by side"
    fi
    say "  Ctrl-C is fine, the next run goes on where this one was"
}

# before_local_cluster : checks for one that is to be started, says what it changes, asks once.
before_local_cluster() {
    if cluster_answers; then
        say "The local Kubernetes runs already (make local-up) and is kept."
    else
        check_host
        host_changes
        agree
    fi
}
