module egress-proxies.io/deploy/local

go 1.26.0
