// Package proxy is the Proxy resource as Go programs see it: the fields that the benchmark uses. The CRD in
// crds/ decides; an unknown field would be dropped by the API server, which the benchmark would notice.
package proxy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the resource.
var GroupVersion = schema.GroupVersion{Group: "crawl.example.com", Version: "v1alpha1"}

// Names that stand in objects.
const (
	Finalizer  = "crawl.example.com/finalizer"
	SpecHash   = "crawl.example.com/spec-hash"
	Ready      = "Ready"
	Namespace  = "egress-proxies" // where machines are
	NamePrefix = "px-"
)

// AddToScheme makes the type known to clients.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(GroupVersion, &Proxy{}, &ProxyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
}

// Proxy is the resource.
type Proxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec,omitempty"`
	Status            Status `json:"status,omitempty"`
}

// Spec is what is asked for.
type Spec struct {
	Mode        string            `json:"mode,omitempty"`
	Provider    string            `json:"provider,omitempty"`
	Port        int32             `json:"port,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	HealthCheck *HealthCheck      `json:"healthCheck,omitempty"`
}

// HealthCheck says how it is probed.
type HealthCheck struct {
	URL              string `json:"url,omitempty"`
	IntervalSeconds  int32  `json:"intervalSeconds,omitempty"`
	TimeoutSeconds   int32  `json:"timeoutSeconds,omitempty"`
	SuccessThreshold int32  `json:"successThreshold,omitempty"`
	FailureThreshold int32  `json:"failureThreshold,omitempty"`
}

// Status is what a controller reports.
type Status struct {
	Phase               string             `json:"phase,omitempty"`
	Reason              string             `json:"reason,omitempty"`
	ProviderID          string             `json:"providerID,omitempty"`
	IP                  string             `json:"ip,omitempty"`
	Port                int32              `json:"port,omitempty"`
	LatencyMillis       *int32             `json:"latencyMillis,omitempty"`
	LastHealthCheckTime string             `json:"lastHealthCheckTime,omitempty"`
	ObservedGeneration  int64              `json:"observedGeneration,omitempty"`
	Conditions          []metav1.Condition `json:"conditions,omitempty"`
}

// ProxyList is a list of them.
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Proxy `json:"items"`
}

// DeepCopy of the whole object.
func (p *Proxy) DeepCopy() *Proxy {
	out := &Proxy{TypeMeta: p.TypeMeta, Spec: p.Spec, Status: p.Status}
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if p.Spec.Attributes != nil {
		out.Spec.Attributes = make(map[string]string, len(p.Spec.Attributes))
		for key, value := range p.Spec.Attributes {
			out.Spec.Attributes[key] = value
		}
	}
	if p.Spec.HealthCheck != nil {
		check := *p.Spec.HealthCheck
		out.Spec.HealthCheck = &check
	}
	if p.Status.LatencyMillis != nil {
		latency := *p.Status.LatencyMillis
		out.Status.LatencyMillis = &latency
	}
	if p.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(p.Status.Conditions))
		for i := range p.Status.Conditions {
			p.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
		}
	}
	return out
}

// DeepCopyObject for the client.
func (p *Proxy) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject for the client.
func (l *ProxyList) DeepCopyObject() runtime.Object {
	out := &ProxyList{TypeMeta: l.TypeMeta, Items: make([]Proxy, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return out
}
