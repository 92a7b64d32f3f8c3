package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"egress-proxies.io/bench/proxy"
)

const nodeWorkers = 16

// Node plays scheduler, kubelet and garbage collector: it binds each Pod that may be scheduled, says at once
// that it runs and at which address, confirms that a deleted one has ended, and deletes the Secret of one
// that has gone. It is as fast as the API server lets it be, for every contestant alike.
type Node struct {
	client   *kubernetes.Clientset
	machines *Machines
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
	started  sync.WaitGroup

	mutex sync.Mutex
	fault error
	made  int
}

func startNode(ctx context.Context, config *rest.Config, machines *Machines) (*Node, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", proxy.Namespace, fields.Everything())
	n := &Node{
		client:   client,
		machines: machines,
		informer: cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{}),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second)),
	}
	add := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			n.queue.Add(key)
		}
	}
	_, err = n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) }, DeleteFunc: add,
	})
	if err != nil {
		return nil, err
	}
	n.started.Go(func() { n.informer.Run(ctx.Done()) })
	for range nodeWorkers {
		n.started.Go(func() { n.work(ctx) })
	}
	go func() {
		<-ctx.Done()
		n.queue.ShutDown()
	}()
	if !cache.WaitForCacheSync(ctx.Done(), n.informer.HasSynced) {
		return nil, ctx.Err()
	}
	return n, nil
}

func (n *Node) work(ctx context.Context) {
	for {
		key, ended := n.queue.Get()
		if ended {
			return
		}
		if err := n.sync(ctx, key); err != nil && ctx.Err() == nil {
			n.fail(err)
			n.queue.AddRateLimited(key)
		} else {
			n.queue.Forget(key)
		}
		n.queue.Done(key)
	}
}

func (n *Node) fail(err error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.fault = err
}

func (n *Node) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	object, exists, err := n.informer.GetStore().GetByKey(key)
	if err != nil {
		return err
	}
	if !exists {
		n.machines.release(name)
		err := n.client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		return ignore(err, apierrors.IsNotFound)
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("%s is no pod", key)
	}
	pods := n.client.CoreV1().Pods(namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
		return ignore(pods.Delete(ctx, name, now), apierrors.IsNotFound)
	case len(pod.Spec.SchedulingGates) > 0 || pod.Status.Phase == corev1.PodRunning:
		return nil
	case pod.Spec.NodeName == "":
		bound := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "bench"},
		}
		// The watch brings it back; a second event before that finds it bound.
		return ignore(pods.Bind(ctx, bound, metav1.CreateOptions{}), apierrors.IsConflict, apierrors.IsNotFound)
	default:
		return n.run(ctx, pod)
	}
}

func (n *Node) run(ctx context.Context, pod *corev1.Pod) error {
	address, err := n.machines.take(pod.Name)
	if err != nil {
		return err
	}
	running := pod.DeepCopy()
	now := metav1.Now()
	running.Status.Phase, running.Status.StartTime = corev1.PodRunning, &now
	running.Status.HostIP, running.Status.HostIPs = "127.0.0.1", []corev1.HostIP{{IP: "127.0.0.1"}}
	running.Status.PodIP, running.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		running.Status.Conditions = append(running.Status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, container := range pod.Spec.Containers {
		running.Status.ContainerStatuses = append(running.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, ContainerID: "bench://" + string(pod.UID),
			Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	_, err = n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, running, metav1.UpdateOptions{})
	if err == nil {
		n.mutex.Lock()
		n.made++
		n.mutex.Unlock()
	}
	return ignore(err, apierrors.IsNotFound, apierrors.IsConflict)
}

// left counts the machines that are there, by the API server's own word.
func (n *Node) left(ctx context.Context) (pods, secrets int, err error) {
	// No options: a quorum read of all.
	found, err := n.client.CoreV1().Pods(proxy.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err
	}
	kept, err := n.client.CoreV1().Secrets(proxy.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err
	}
	return len(found.Items), len(kept.Items), nil
}

// ran counts machines that were made to run, and tells the last thing that went wrong.
func (n *Node) ran() (made int, fault error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.made, n.fault
}

func ignore(err error, harmless ...func(error) bool) error {
	for _, is := range harmless {
		if err != nil && is(err) {
			return nil
		}
	}
	return err
}
