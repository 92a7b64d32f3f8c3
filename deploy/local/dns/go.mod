module egress-proxies.io/deploy/local/dns

go 1.26.0

godebug default=go1.26
