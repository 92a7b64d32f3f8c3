package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// pageURL is fetched through every proxy. The name exists nowhere: only a proxy can answer for it.
const pageURL = "http://page.bench.example/"

// settles is how many probes of a machine a contestant has after which its verdict may be called settled: a latency
// that was measured while the whole fleet was made at once is put right when three in a row agree on another, and the
// first one after a start may be as slow, for the same reason.
const settles = 4

// Machines are the far ends of the Pods: a forward proxy on an address of its own, all of them loopback
// addresses of this host, which answers for the page itself.
type Machines struct {
	port   int
	server *http.Server

	mutex   sync.Mutex
	free    []string
	inUse   map[string]string // by the name of the Pod
	probed  map[string]int
	settled time.Time // when the last machine so far had been probed often enough
	ready   int       // how many have been
	probes  int
	refused int
}

func startMachines(count int) (*Machines, error) {
	addresses := make([]string, count)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("127.77.%d.%d", i/250, i%250+1)
	}
	port, err := freePort(addresses[0])
	if err != nil {
		return nil, err
	}
	m := &Machines{port: port, free: addresses, inUse: map[string]string{}, probed: map[string]int{}}
	m.server = &http.Server{Handler: http.HandlerFunc(m.answer), ReadHeaderTimeout: 10 * time.Second}
	for _, address := range addresses {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			m.stop()
			return nil, fmt.Errorf("the address of a machine: %w", err)
		}
		go func() { _ = m.server.Serve(listener) }()
	}
	return m, nil
}

// answer is that of a forward proxy: only a request that names the whole URL gets the page.
func (m *Machines) answer(w http.ResponseWriter, r *http.Request) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	address, _, _ := net.SplitHostPort(local.String())
	good := r.Method == http.MethodGet && r.URL.String() == pageURL
	m.mutex.Lock()
	m.probes++
	if !good {
		m.refused++
	} else if m.probed[address]++; m.probed[address] == settles {
		m.ready, m.settled = m.ready+1, time.Now()
	}
	m.mutex.Unlock()
	if !good {
		http.Error(w, "a proxy is asked for "+pageURL, http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// take gives a Pod its address, always the same one.
func (m *Machines) take(pod string) (string, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if address, ok := m.inUse[pod]; ok {
		return address, nil
	}
	if len(m.free) == 0 {
		return "", fmt.Errorf("no address is left for pod %s: more machines than were asked for", pod)
	}
	address := m.free[0]
	m.free = m.free[1:]
	m.inUse[pod] = address
	return address, nil
}

func (m *Machines) release(pod string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if address, ok := m.inUse[pod]; ok {
		delete(m.inUse, pod)
		m.free = append(m.free, address)
	}
}

// watchProbes forgets all probes, to see them anew.
func (m *Machines) watchProbes() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	clear(m.probed)
	m.ready, m.probes, m.refused = 0, 0, 0
}

// settledProbes says how many machines were probed often enough since then, and when the last of them was.
func (m *Machines) settledProbes() (count int, last time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.ready, m.settled
}

// counts of requests since then: all, and those that were not what a proxy is asked.
func (m *Machines) counts() (probes, refused int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.probes, m.refused
}

func (m *Machines) stop() { _ = m.server.Close() }
