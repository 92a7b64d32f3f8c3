// Command peer is the benchmark's measure: a controller for the same Proxy resource, written the plain way
// with controller-runtime, so that the operator's figures can be told as ratios from the same run.
//
// It does for a Managed Proxy of one provider what the operator does: finalizer, spec hash, a Pod with its
// Secret, polls, probes through the proxy, conditions, Events, deletion until the machine is gone. What
// else the operator has (sandboxed providers, cloud-init and credential Secrets, leases, its API) is left
// out, to the peer's advantage. It is meant as an honest loop with sensible settings: client-side throttling
// off, 32 workers, managed fields stripped from the cache, machines not cached.
package main

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"egress-proxies.io/bench/proxy"
)

func main() {
	workers := flag.Int("workers", 32, "reconciles at the same time")
	probes := flag.Int("probes", 256, "probes at the same time")
	metrics := flag.String("metrics-address", "127.0.0.1:8080", "where /metrics listens")
	health := flag.String("probe-address", "127.0.0.1:8081", "where /readyz listens")
	image := flag.String("image", "docker.io/ubuntu/squid:latest", "image of the machines")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(settings{*workers, *probes, *metrics, *health, *image}); err != nil {
		ctrl.Log.Error(err, "stopped")
		os.Exit(1)
	}
}

type settings struct {
	workers, probes        int
	metrics, health, image string
}

func run(set settings) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	proxy.AddToScheme(scheme)
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                metricsserver.Options{BindAddress: set.metrics},
		HealthProbeBindAddress: set.health,
	})
	if err != nil {
		return err
	}
	engine := newEngine(set.probes)
	reconciler := &Reconciler{
		Client:   mgr.GetClient(),
		Machines: Machines{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Image: set.image},
		Engine:   engine,
		Events:   mgr.GetEventRecorder("peer"),
		Polls:    Polls{Provisioning: 5 * time.Second, Deletion: 5 * time.Second, Drift: time.Minute},
	}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&proxy.Proxy{}).
		WatchesRawSource(source.Channel(engine.events, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: set.workers}).
		Complete(reconciler)
	if err != nil {
		return err
	}
	if err := mgr.Add(engine); err != nil {
		return err
	}
	if err := addReadiness(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// addReadiness makes /readyz answer 200 once the cache is filled.
func addReadiness(mgr ctrl.Manager) error {
	var filled atomic.Bool
	wait := func(ctx context.Context) error {
		filled.Store(mgr.GetCache().WaitForCacheSync(ctx))
		return nil
	}
	if err := mgr.Add(manager.RunnableFunc(wait)); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("cache", func(*http.Request) error {
		if !filled.Load() {
			return errors.New("the cache is being filled")
		}
		return nil
	})
}
