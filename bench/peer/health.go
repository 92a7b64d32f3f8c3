package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"egress-proxies.io/bench/proxy"
)

const (
	tick            = 250 * time.Millisecond
	defaultInterval = 30 * time.Second
	defaultTimeout  = 10 * time.Second
)

// Engine probes every machine through itself and tells the loop when a verdict has changed.
type Engine struct {
	events chan event.TypedGenericEvent[client.Object]
	slots  chan struct{}

	mutex   sync.Mutex
	targets map[types.NamespacedName]*target
}

type target struct {
	address, url      string
	interval, timeout time.Duration
	failuresAllowed   int32
	due               time.Time
	inFlight          bool
	failures          int32
	verdict           *verdict
}

type verdict struct {
	healthy bool
	latency time.Duration
	at      time.Time
}

func newEngine(slots int) *Engine {
	return &Engine{
		events:  make(chan event.TypedGenericEvent[client.Object], 64),
		slots:   make(chan struct{}, slots),
		targets: map[types.NamespacedName]*target{},
	}
}

// Watch begins to probe this address: a new one at the next tick, one with a verdict within its interval.
func (e *Engine) Watch(p *proxy.Proxy, address string) {
	fresh := newTarget(p, address)
	e.mutex.Lock()
	defer e.mutex.Unlock()
	key := client.ObjectKeyFromObject(p)
	if known, ok := e.targets[key]; ok && known.address == fresh.address && known.url == fresh.url {
		return
	}
	e.targets[key] = fresh
}

func newTarget(p *proxy.Proxy, address string) *target {
	fresh := &target{interval: defaultInterval, timeout: defaultTimeout, failuresAllowed: 3}
	fresh.address = net.JoinHostPort(address, strconv.Itoa(int(port(p))))
	if check := p.Spec.HealthCheck; check != nil {
		fresh.url = check.URL
		fresh.interval = max(time.Duration(check.IntervalSeconds)*time.Second, time.Second)
		fresh.timeout = max(time.Duration(check.TimeoutSeconds)*time.Second, time.Second)
		fresh.failuresAllowed = max(check.FailureThreshold, 1)
	}
	// After a restart the status says what the last process knew.
	known := meta.FindStatusCondition(p.Status.Conditions, "Healthy")
	if known != nil && known.Status != metav1.ConditionUnknown && p.Status.IP == address && p.Status.LatencyMillis != nil {
		at, _ := time.Parse(time.RFC3339, p.Status.LastHealthCheckTime)
		latency := time.Duration(*p.Status.LatencyMillis) * time.Millisecond
		fresh.verdict = &verdict{known.Status == metav1.ConditionTrue, latency, at}
		// So that a fleet taken over is not probed in one burst.
		fresh.due = time.Now().Add(rand.N(fresh.interval))
	}
	return fresh
}

// Forget ends the probes of a Proxy.
func (e *Engine) Forget(key types.NamespacedName) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.targets, key)
}

// Verdict is what the loop was told last.
func (e *Engine) Verdict(key types.NamespacedName) (verdict, bool) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if known, ok := e.targets[key]; ok && known.verdict != nil {
		return *known.verdict, true
	}
	return verdict{}, false
}

// Start runs the engine until the manager ends.
func (e *Engine) Start(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			e.startDue(ctx, now)
		}
	}
}

func (e *Engine) startDue(ctx context.Context, now time.Time) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for key, one := range e.targets {
		if one.inFlight || one.due.After(now) {
			continue
		}
		select {
		case e.slots <- struct{}{}:
		default:
			return // all are in use: at the next tick
		}
		one.inFlight, one.due = true, now.Add(one.interval)
		go func() {
			began := time.Now()
			ok := probe(ctx, one)
			<-e.slots
			e.record(ctx, key, one, ok, time.Since(began))
		}()
	}
}

// probe fetches the URL through the proxy, over a new connection.
func probe(ctx context.Context, one *target) bool {
	ctx, cancel := context.WithTimeout(ctx, one.timeout)
	defer cancel()
	through := http.ProxyURL(&url.URL{Scheme: "http", Host: one.address})
	transport := &http.Transport{Proxy: through, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, one.url, nil)
	if err != nil {
		return false
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	return err == nil && response.StatusCode == http.StatusOK
}

func (e *Engine) record(ctx context.Context, key types.NamespacedName, one *target, ok bool, took time.Duration) {
	e.mutex.Lock()
	one.inFlight = false
	if ok {
		one.failures = 0
	} else {
		one.failures++
	}
	healthy := ok || (one.verdict != nil && one.verdict.healthy && one.failures < one.failuresAllowed)
	changed := one.verdict == nil || one.verdict.healthy != healthy || (ok && slower(one.verdict.latency, took))
	if changed {
		one.verdict = &verdict{healthy, took, time.Now()}
	}
	e.mutex.Unlock()
	if !changed {
		return
	}
	p := &proxy.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case e.events <- event.TypedGenericEvent[client.Object]{Object: p}:
	case <-ctx.Done():
	}
}

// slower or faster by enough to be worth a write.
func slower(reported, measured time.Duration) bool {
	return (measured - reported).Abs() > max(20*time.Millisecond, reported/2)
}
