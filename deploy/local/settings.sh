# shellcheck shell=bash disable=SC2034
# The local cluster's versions, places and addresses, in one file, sourced by
# every script beside it. It only sets variables: sourcing it changes nothing.

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# ---- Versions -------------------------------------------------------------
KUBERNETES_VERSION=v1.36.3 # node/go.mod pins the same

version=k8s.io/component-base/version
# No symbols: half the size. The version is set as in Kubernetes' own releases,
# since clients read it.
LINKER_FLAGS="-s -w -X $version.gitVersion=$KUBERNETES_VERSION -X $version.gitMajor=1 -X $version.gitMinor=36"

# ---- Places ---------------------------------------------------------------
# What is built or downloaded, kept by `down`: each thing under the hash of
# what it is made from, so that it is made once and never stale.
EPO_CACHE="${EPO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/egress-proxies-operator}"

hash_of() { # hash_of FILE... : one short hash over names and contents; - is the input
    (cd "$here" && sha256sum -- "$@" | sha256sum | cut -c1-12)
}

# The Debian packages, by name; their dependencies are named too, because
# nothing here may depend on what the host happens to have installed.
NODE_PACKAGES=(
    containerd runc libseccomp2 containernetworking-plugins
    iptables libxtables12 libip4tc2 libip6tc2 libnftnl11 libmnl0
    conntrack libnetfilter-conntrack3 libnfnetlink0
    iproute2 libbpf1 libelf1 zlib1g libcap2 libbsd0 libmd0
)
SQUID_PACKAGES=(
    squid squid-common squid-langpack busybox-static
    libc6 libgcc-s1 libstdc++6 libcrypt1 libnettle8 libhogweed6 libecap3
    libgnutls30 libp11-kit0 libidn2-0 libunistring2 libtasn1-6 libgmp10 libffi8
    libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libkeyutils1
    libcom-err2 libsystemd0 libgcrypt20 libgpg-error0 liblzma5 libzstd1
    liblz4-1 libcap2 libnetfilter-conntrack3 libnfnetlink0 libmnl0 libltdl7
)

# Kubernetes in one binary, with a link in bin/ for each program's name; and CoreDNS.
NODE_DIR="$EPO_CACHE/node/$(printf '%s' "$LINKER_FLAGS" | hash_of - {node,dns}/{go.mod,go.sum,main.go})"
# Node programs (bin/, wrapped where they need their own libraries) and Squid's files.
PACKAGES_DIR="$EPO_CACHE/packages/$(printf '%s\n' "${NODE_PACKAGES[@]}" "${SQUID_PACKAGES[@]}" | hash_of - packages)"
# The three images as OCI archives.
IMAGES_DIR="$EPO_CACHE/images/$(printf '%s' "${PACKAGES_DIR##*/}" |
    hash_of - images go.mod archive/{main,image,layer}.go pause/main.go probe-target/{main,handler}.go)"

# The program that makes the API server's keys.
KEYS_DIR="$EPO_CACHE/tools/keys-$(hash_of go.mod keys/main.go)"

# The running cluster. Unix sockets are in here, and a socket's path holds 107
# bytes at most: the names below are short for that reason.
CLUSTER_DIR="$EPO_CACHE/cluster"
CLUSTER_KUBECONFIG="$CLUSTER_DIR/kubeconfig"
CONTAINERD_SOCKET="$CLUSTER_DIR/containerd.sock"

# ---- Images ---------------------------------------------------------------
PAUSE_IMAGE=localhost/egress-proxies/pause:dev
# The name that the kubernetes provider runs when its config names no image.
SQUID_IMAGE=docker.io/ubuntu/squid:latest
PROBE_TARGET_IMAGE=localhost/egress-proxies/probe-target:dev

# ---- Addresses ------------------------------------------------------------
# 198.18.0.0/15 is set aside for benchmarks (RFC 2544): it is in nobody's LAN.
HOST_LINK=epo0           # an empty bridge that carries HOST_ADDRESS, nothing else
HOST_ADDRESS=198.18.0.1 # API server, kubelet and name server listen here
POD_RANGE=198.18.0.0/16
SERVICE_RANGE=198.19.0.0/16
API_SERVER_PORT=6443
NODE_NAME=local
