package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"egress-proxies.io/bench/proxy"
)

// Sample is what the operator made of one Proxy: the object, and its Pod as JSON.
type Sample struct {
	object *unstructured.Unstructured
	pod    []byte
}

// takeSample reads it while it is there.
func (t *Trial) takeSample(ctx context.Context) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(proxy.GroupVersion.WithKind("Proxy"))
	if err := t.proxies.client.Get(ctx, client.ObjectKeyFromObject(named(0)), object); err != nil {
		return err
	}
	pod, err := t.node.client.CoreV1().Pods(proxy.Namespace).Get(ctx, machineOf(object), metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations,
		Finalizers: pod.Finalizers, OwnerReferences: pod.OwnerReferences,
	}
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{}
	text, err := json.Marshal(pod)
	t.sample = &Sample{object: object, pod: text}
	return err
}

func machineOf(object metav1.Object) string { return proxy.NamePrefix + string(object.GetUID()) }

// Bare sends what the operator writes for each Proxy, and nothing else: it decides nothing, asks for nothing, probes
// nothing, tells no Events and needs no watch of its own. About what these writes take on this machine: bodies are
// those of one Proxy with the other's names, the Pod goes as protobuf and with what the API server filled in.
type Bare struct {
	*Trial
	work  chan func() error
	mutex sync.Mutex
	own   map[string]*proxy.Proxy // by the name of the Pod, as it was answered last
	ends  map[string]bool         // the Pods that were seen to run
	fault error
}

// bare makes the fleet by requests alone.
func bare(ctx context.Context, set Settings, sample *Sample, dir string) (Figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own := filepath.Join(dir, "bare")
	if err := os.Mkdir(own, 0o700); err != nil {
		return Figures{}, err
	}
	t := &Trial{set: set, sample: sample, figures: Figures{name: "writes alone"}}
	defer t.tearDown()
	if err := t.setUp(ctx, own); err != nil {
		return t.figures, err
	}
	// Room for all: those who watch must never wait.
	b := &Bare{
		Trial: t, work: make(chan func() error, 4*set.fleet), own: map[string]*proxy.Proxy{}, ends: map[string]bool{},
	}
	for range 2 * clients {
		go b.send(ctx)
	}
	added := func(object any) {
		if one, ok := object.(*proxy.Proxy); ok {
			b.work <- func() error { return b.begin(ctx, one.DeepCopy()) }
		}
	}
	runs := func(_, object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning && b.isNew(pod.Name) {
			b.work <- func() error { return b.end(ctx, pod) }
		}
	}
	if _, err := t.proxies.watch.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: added}); err != nil {
		return t.figures, err
	}
	if _, err := t.node.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: runs}); err != nil {
		return t.figures, err
	}
	// Not in one line: what is returned must be read after the making.
	err := b.makeAll(ctx)
	return t.figures, err
}

// isNew says so once.
func (b *Bare) isNew(pod string) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	known := b.ends[pod]
	b.ends[pod] = true
	return !known
}

func (b *Bare) makeAll(ctx context.Context) error {
	before, began := b.plane.cpu(), time.Now()
	if err := b.proxies.create(ctx, b.set.fleet, b.machines.port); err != nil {
		return err
	}
	for end := began.Add(patience); len(b.proxies.readyTimes()) < b.set.fleet; {
		b.mutex.Lock()
		fault := b.fault
		b.mutex.Unlock()
		if fault == nil && time.Now().After(end) {
			fault = context.DeadlineExceeded
		}
		if fault != nil {
			return fmt.Errorf("%d of %d are Ready: %w", len(b.proxies.readyTimes()), b.set.fleet, fault)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	b.figures.planeCPU = b.plane.cpu() - before
	b.figures.readyAll = slices.MaxFunc(b.proxies.readyTimes(), time.Time.Compare).Sub(began)
	b.say("all Ready %.1f s after the first create", b.figures.readyAll.Seconds())
	return nil
}

func (b *Bare) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case request := <-b.work:
			if err := request(); err != nil {
				b.mutex.Lock()
				b.fault = err
				b.mutex.Unlock()
			}
		}
	}
}

// begin sends what comes before the machine runs: finalizer and annotations, the Pod, the status that names it.
func (b *Bare) begin(ctx context.Context, one *proxy.Proxy) error {
	sample := b.sample.object
	metadata, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": one.UID, "resourceVersion": one.ResourceVersion,
		"finalizers": sample.GetFinalizers(), "annotations": sample.GetAnnotations(),
	}})
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, b.renamed(metadata, one))
	if err := b.proxies.client.Patch(ctx, one, patch); err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(b.renamed(b.sample.pod, one), pod); err != nil {
		return err
	}
	b.keep(one) // before the Pod can run
	if _, err := b.node.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	status, _, err := unstructured.NestedMap(sample.Object, "status")
	if err != nil {
		return err
	}
	for _, later := range []string{"ip", "port", "latencyMillis", "lastHealthCheckTime"} {
		delete(status, later)
	}
	status["phase"] = "Provisioning"
	conditions, _ := status["conditions"].([]any)
	for _, each := range conditions {
		if condition, ok := each.(map[string]any); ok {
			condition["status"] = "False"
		}
	}
	return b.writeStatus(ctx, one, status)
}

// end sends the status of a machine that runs.
func (b *Bare) end(ctx context.Context, pod *corev1.Pod) error {
	b.mutex.Lock()
	one, known := b.own[pod.Name]
	b.mutex.Unlock()
	if !known {
		return fmt.Errorf("pod %s is nobody's", pod.Name)
	}
	if one.Status.Phase == "" {
		// The answer to the first status is under way: after the others that wait.
		time.Sleep(time.Millisecond)
		b.work <- func() error { return b.end(ctx, pod) }
		return nil
	}
	status, _, err := unstructured.NestedMap(b.sample.object.Object, "status")
	if err != nil {
		return err
	}
	status["ip"] = pod.Status.PodIP
	return b.writeStatus(ctx, one.DeepCopy(), status)
}

func (b *Bare) writeStatus(ctx context.Context, one *proxy.Proxy, status map[string]any) error {
	steps, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": one.UID},
		{"op": "test", "path": "/metadata/resourceVersion", "value": one.ResourceVersion},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.JSONPatchType, b.renamed(steps, one))
	if err := b.proxies.client.Status().Patch(ctx, one, patch); err != nil {
		return err
	}
	b.keep(one)
	return nil
}

func (b *Bare) keep(one *proxy.Proxy) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.own[machineOf(one)] = one.DeepCopy()
}

// renamed makes what was the sample's this Proxy's.
func (b *Bare) renamed(text []byte, one *proxy.Proxy) []byte {
	sample := b.sample.object
	names := strings.NewReplacer(string(sample.GetUID()), string(one.UID), `"`+sample.GetName()+`"`, `"`+one.Name+`"`)
	return []byte(names.Replace(string(text)))
}
