package main

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	operatorUser = "system:serviceaccount:egress-proxies-operator-system:egress-proxies-operator"
	peerUser     = "system:serviceaccount:" + fleetNamespace + ":peer"
	// How long a contestant may take to end; the operator lets provider calls finish.
	endsWithin = 30 * time.Second
)

// Contestant is a controller of Proxies under test.
type Contestant struct {
	name string
	// Its ServiceAccount.
	namespace, account string
	program            string
	// arguments for a folder of its own and the addresses of its metrics and its readiness.
	arguments func(dir, metrics, ready string) ([]string, error)
	// The metric that counts reconciles.
	reconciles string
}

func operator(set Settings) Contestant {
	return Contestant{
		name: "operator", namespace: "egress-proxies-operator-system", account: "egress-proxies-operator",
		program: set.operator, reconciles: "proxy_operator_reconcile_duration_seconds_count",
		arguments: func(dir, metrics, ready string) ([]string, error) {
			config := filepath.Join(dir, "providers.yaml")
			if err := os.WriteFile(config, []byte(fmt.Sprintf(providersConfig, set.component)), 0o600); err != nil {
				return nil, err
			}
			discovery, err := freePort("127.0.0.1")
			if err != nil {
				return nil, err
			}
			return []string{
				"run", "--providers-config", config, "--component-store", set.store,
				"--discovery-address", fmt.Sprintf("127.0.0.1:%d", discovery),
				"--metrics-address", metrics, "--probe-address", ready,
			}, nil
		},
	}
}

// The machines are on loopback, which has to be allowed like any private network.
const providersConfig = `apiVersion: crawl.example.com/v1alpha1
kind: ProvidersConfig
providers:
  kubernetes:
    source: { file: %q }
    config: { image: "docker.io/ubuntu/squid:latest" }
    kubernetes: { namespace: egress-proxies, serviceAccount: egress-proxies-provider, resources: [pods, secrets] }
    addressCidrs: [127.77.0.0/16]
`

func peer(set Settings) Contestant {
	return Contestant{
		name: "plain loop", namespace: fleetNamespace, account: "peer",
		program: set.peer, reconciles: "controller_runtime_reconcile_total",
		arguments: func(_, metrics, ready string) ([]string, error) {
			return []string{"-metrics-address", metrics, "-probe-address", ready}, nil
		},
	}
}

// Running is a contestant at work.
type Running struct {
	*Process
	metrics, readiness string
	contestant         Contestant
}

// start starts it and waits until it says that it is ready.
func (c Contestant) start(plane *ControlPlane, run string) (*Running, error) {
	kubeconfig, err := plane.serviceAccount(c.namespace, c.account)
	if err != nil {
		return nil, err
	}
	var addresses [2]string
	for i := range addresses {
		port, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	arguments, err := c.arguments(plane.dir, addresses[0], addresses[1])
	if err != nil {
		return nil, err
	}
	environment := append(environment(), "KUBECONFIG="+kubeconfig)
	process, err := startProcess(plane.dir, run, environment, c.program, arguments...)
	if err != nil {
		return nil, err
	}
	running := &Running{process, "http://" + addresses[0] + "/metrics", "http://" + addresses[1] + "/readyz", c}
	// The first start may have to compile the component.
	return running, running.await(3*time.Minute, running.ready)
}

var web = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (r *Running) ready() error {
	response, err := web.Get(r.readiness)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if response.StatusCode != http.StatusOK {
		return errors.New(string(text))
	}
	return nil
}

// reconciled sums up the contestant's own count of reconciles: the one figure that nobody else knows.
func (r *Running) reconciled() (int, error) {
	response, err := web.Get(r.metrics)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	total, found := 0.0, false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(series, "{")
		if name != r.contestant.reconciles {
			continue
		}
		// Labels may hold spaces: the value is the last word.
		number, err := strconv.ParseFloat(value[strings.LastIndex(value, " ")+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", series, err)
		}
		total, found = total+number, true
	}
	if !found {
		return 0, fmt.Errorf("%s has no %s", r.metrics, r.contestant.reconciles)
	}
	return int(total), lines.Err()
}

func encode(text []byte) string { return base64.StdEncoding.EncodeToString(text) }
