package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"egress-proxies.io/bench/proxy"
)

const defaultPort = 3128

// State of a machine.
type State int

// The states that a machine can be in.
const (
	Absent State = iota
	Provisioning
	Running
	Deleting
)

// Machine is what a look shows.
type Machine struct {
	State   State
	Address string
	Port    int32
}

// Machines are Pods with a Secret each, of the same shape as those of the kubernetes provider. They are read
// from the API server and not from a cache: a provider of a cloud has no watch either.
type Machines struct {
	Reader client.Reader
	Writer client.Client
	Image  string
}

// Create makes the machine; one that is there already is as good.
func (m Machines) Create(ctx context.Context, p *proxy.Proxy) (string, error) {
	pod := m.pod(p)
	if err := m.Writer.Create(ctx, pod); apierrors.IsAlreadyExists(err) {
		if err := m.Reader.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	if err := m.Writer.Create(ctx, secret(p, pod)); client.IgnoreAlreadyExists(err) != nil {
		return "", err
	}
	return pod.Namespace + "/" + pod.Name, nil
}

// Get looks at the machine.
func (m Machines) Get(ctx context.Context, id string) (Machine, error) {
	key, err := key(id)
	if err != nil {
		return Machine{}, err
	}
	var pod corev1.Pod
	if err := m.Reader.Get(ctx, key, &pod); apierrors.IsNotFound(err) {
		return Machine{State: Absent}, nil
	} else if err != nil {
		return Machine{}, err
	}
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return Machine{State: Deleting}, nil
	case pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" && isReady(&pod):
		return Machine{State: Running, Address: pod.Status.PodIP, Port: pod.Spec.Containers[0].Ports[0].ContainerPort}, nil
	default:
		return Machine{State: Provisioning}, nil
	}
}

// Delete asks for its end; one that is gone is as good.
func (m Machines) Delete(ctx context.Context, id string) error {
	key, err := key(id)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return client.IgnoreNotFound(m.Writer.Delete(ctx, pod))
}

func key(id string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok {
		return client.ObjectKey{}, fmt.Errorf("%q is no id of a machine", id)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, container := range pod.Status.ContainerStatuses {
		if !container.Ready {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

func labels(p *proxy.Proxy) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "squid",
		"app.kubernetes.io/managed-by": "peer",
		"proxy-operator-uid":           string(p.UID),
		"proxy-operator-cluster":       "bench",
		"proxy-operator-namespace":     p.Namespace,
		"proxy-operator-name":          p.Name,
		"proxy-operator-provider":      p.Spec.Provider,
	}
}

func port(p *proxy.Proxy) int32 {
	if p.Spec.Port == 0 {
		return defaultPort
	}
	return p.Spec.Port
}

func (m Machines) pod(p *proxy.Proxy) *corev1.Pod {
	name, listens := proxy.NamePrefix+string(p.UID), port(p)
	connects := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(listens)}}
	size := resource.MustParse("16Mi")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: proxy.Namespace, Name: name, Labels: labels(p)},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(bool),
			EnableServiceLinks:            new(bool),
			TerminationGracePeriodSeconds: new(int64(20)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(13)), RunAsGroup: new(int64(13)), FSGroup: new(int64(13)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:    "squid",
				Image:   m.Image,
				Command: []string{"/usr/sbin/squid", "-N", "-f", "/etc/egress-proxy/squid.conf"},
				Ports:   []corev1.ContainerPort{{Name: "proxy", ContainerPort: listens}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("50m"), "memory": resource.MustParse("64Mi")},
				},
				StartupProbe:   &corev1.Probe{ProbeHandler: connects, PeriodSeconds: 1, FailureThreshold: 120},
				ReadinessProbe: &corev1.Probe{ProbeHandler: connects, PeriodSeconds: 10, FailureThreshold: 3},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "config", MountPath: "/etc/egress-proxy", ReadOnly: true},
					{Name: "scratch", MountPath: "/run/egress-proxy"},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
			},
		},
	}
}

func secret(p *proxy.Proxy, pod *corev1.Pod) *corev1.Secret {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, Labels: labels(p), OwnerReferences: []metav1.OwnerReference{owner},
		},
		Immutable: new(true),
		StringData: map[string]string{"squid.conf": fmt.Sprintf(
			"http_port %d\nvisible_hostname %s\nacl clients src 10.0.0.0/8\nhttp_access allow clients\nhttp_access deny all\n"+
				"access_log stdio:/dev/stdout\ncache_log /dev/stderr\ncache deny all\npid_filename none\n", port(p), pod.Name)},
	}
}
