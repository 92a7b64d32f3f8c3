package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"egress-proxies.io/bench/proxy"
)

const (
	fleetNamespace = "bench-fleet"
	clients        = 16 // that create and delete side by side, as a person's tool would
)

// Proxies is the fleet as its owner sees it, through a watch of its own.
type Proxies struct {
	client client.WithWatch
	watch  cache.SharedIndexInformer

	mutex sync.Mutex
	ready map[string]time.Time // when it was first seen Ready
	gone  map[string]time.Time
	// Statuses that changed while that is watched.
	changes []change
	watched atomic.Bool
}

func startProxies(ctx context.Context, config *rest.Config) (*Proxies, error) {
	scheme := runtime.NewScheme()
	proxy.AddToScheme(scheme)
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &proxy.ProxyList{}
			return list, api.List(ctx, list, client.InNamespace(fleetNamespace), &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, &proxy.ProxyList{}, client.InNamespace(fleetNamespace), &client.ListOptions{Raw: &options})
		},
	}
	p := &Proxies{
		client: api,
		watch:  cache.NewSharedIndexInformer(source, &proxy.Proxy{}, 0, cache.Indexers{}),
		ready:  map[string]time.Time{},
		gone:   map[string]time.Time{},
	}
	_, err = p.watch.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: p.see, UpdateFunc: p.seeAgain, DeleteFunc: p.miss,
	})
	if err != nil {
		return nil, err
	}
	go p.watch.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), p.watch.HasSynced) {
		return nil, ctx.Err()
	}
	return p, nil
}

func (p *Proxies) see(object any) {
	one, ok := object.(*proxy.Proxy)
	if !ok || !meta.IsStatusConditionTrue(one.Status.Conditions, proxy.Ready) {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, known := p.ready[one.Name]; !known {
		p.ready[one.Name] = time.Now()
	}
}

func (p *Proxies) seeAgain(old, object any) {
	p.see(object)
	before, known := old.(*proxy.Proxy)
	after, is := object.(*proxy.Proxy)
	if !known || !is || !p.watched.Load() {
		return
	}
	if one, differs := changed(before, after); differs {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.changes = append(p.changes, one)
	}
}

// watchChanges forgets all changes of statuses, to see them anew. Until then none is looked at.
func (p *Proxies) watchChanges() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.changes = nil
	p.watched.Store(true)
}

// changesSince gives those, and looks at no more.
func (p *Proxies) changesSince() []change {
	p.watched.Store(false)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.changes
}

func (p *Proxies) miss(object any) {
	if _, name, err := splitKey(object); err == nil {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.gone[name] = time.Now()
	}
}

func splitKey(object any) (namespace, name string, err error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return "", "", err
	}
	return cache.SplitMetaNamespaceKey(key)
}

func (p *Proxies) readyTimes() []time.Time {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return values(p.ready)
}

func (p *Proxies) goneTimes() []time.Time {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return values(p.gone)
}

func values(times map[string]time.Time) []time.Time {
	list := make([]time.Time, 0, len(times))
	for _, at := range times {
		list = append(list, at)
	}
	return list
}

// readyNow says of how many the API server says so now.
func (p *Proxies) readyNow() int {
	count := 0
	for _, object := range p.watch.GetStore().List() {
		if one, ok := object.(*proxy.Proxy); ok && meta.IsStatusConditionTrue(one.Status.Conditions, proxy.Ready) {
			count++
		}
	}
	return count
}

func named(i int) *proxy.Proxy {
	return &proxy.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: fmt.Sprintf("p%04d", i)}}
}

func (p *Proxies) create(ctx context.Context, count, port int) error {
	return sideBySide(count, func(i int) error {
		one := named(i)
		one.Spec = proxy.Spec{
			Mode: "Managed", Provider: "kubernetes", Port: int32(port),
			Attributes: map[string]string{"geo": "local", "tier": "bench"},
			HealthCheck: &proxy.HealthCheck{
				URL: pageURL, IntervalSeconds: 30, TimeoutSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
			},
		}
		return p.client.Create(ctx, one)
	})
}

func (p *Proxies) deleteAll(ctx context.Context, count int) error {
	return sideBySide(count, func(i int) error { return p.client.Delete(ctx, named(i)) })
}

func sideBySide(count int, each func(i int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, clients)
	for range clients {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				if err := each(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed
}
