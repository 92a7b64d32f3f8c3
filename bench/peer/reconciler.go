package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"egress-proxies.io/bench/proxy"
)

// Polls are the times between two looks at a machine.
type Polls struct {
	Provisioning, Deletion, Drift time.Duration
}

// Reconciler is the loop.
type Reconciler struct {
	client.Client
	Machines Machines
	Engine   *Engine
	Events   events.EventRecorder
	Polls    Polls
}

// Reconcile works on one Proxy; the status is patched at the end if it has changed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var p proxy.Proxy
	if err := r.Get(ctx, req.NamespacedName, &p); err != nil {
		r.Engine.Forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !p.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, &p)
	}
	return r.reconcileManaged(ctx, &p)
}

func (r *Reconciler) reconcileManaged(ctx context.Context, p *proxy.Proxy) (ctrl.Result, error) {
	if controllerutil.AddFinalizer(p, proxy.Finalizer) {
		// The watch brings it back.
		return ctrl.Result{}, r.Update(ctx, p)
	}
	hash, err := specHash(p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p.Status.ProviderID == "" {
		return r.create(ctx, p, hash)
	}
	machine, err := r.Machines.Get(ctx, p.Status.ProviderID)
	if err != nil {
		return ctrl.Result{}, err
	}
	base := p.DeepCopy()
	switch machine.State {
	case Running:
		r.Engine.Watch(p, machine.Address)
		p.Status.IP, p.Status.Port = machine.Address, machine.Port
		provisioned(p, metav1.ConditionTrue, "Created", "the machine runs")
		r.applyHealth(p)
		return ctrl.Result{RequeueAfter: r.Polls.Drift}, r.patchStatus(ctx, base, p)
	case Provisioning:
		provisioned(p, metav1.ConditionFalse, "Provisioning", "the machine is being made")
		return ctrl.Result{RequeueAfter: r.Polls.Provisioning}, r.patchStatus(ctx, base, p)
	case Deleting:
		provisioned(p, metav1.ConditionFalse, "Replacing", "the machine is being deleted")
		return ctrl.Result{RequeueAfter: r.Polls.Deletion}, r.patchStatus(ctx, base, p)
	case Absent:
		p.Status.ProviderID, p.Status.IP = "", ""
		provisioned(p, metav1.ConditionFalse, "Replacing", "the machine is gone")
		return ctrl.Result{RequeueAfter: time.Millisecond}, r.patchStatus(ctx, base, p)
	default:
		return ctrl.Result{}, fmt.Errorf("machine %s is in an unknown state", p.Status.ProviderID)
	}
}

func (r *Reconciler) create(ctx context.Context, p *proxy.Proxy, hash string) (ctrl.Result, error) {
	id, err := r.Machines.Create(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p.Annotations[proxy.SpecHash] != hash {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, proxy.SpecHash, hash)
		if err := r.Update(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
	}
	base := p.DeepCopy()
	p.Status.ProviderID = id
	provisioned(p, metav1.ConditionFalse, "Provisioning", "the machine is being made")
	return ctrl.Result{RequeueAfter: r.Polls.Provisioning}, r.patchStatus(ctx, base, p)
}

func (r *Reconciler) reconcileDelete(ctx context.Context, p *proxy.Proxy) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(p, proxy.Finalizer) {
		return ctrl.Result{}, nil
	}
	r.Engine.Forget(client.ObjectKeyFromObject(p))
	gone := p.Status.ProviderID == ""
	if !gone {
		machine, err := r.Machines.Get(ctx, p.Status.ProviderID)
		if err != nil {
			return ctrl.Result{}, err
		}
		gone = machine.State == Absent
	}
	if gone {
		controllerutil.RemoveFinalizer(p, proxy.Finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, p))
	}
	if err := r.Machines.Delete(ctx, p.Status.ProviderID); err != nil {
		return ctrl.Result{}, err
	}
	base := p.DeepCopy()
	provisioned(p, metav1.ConditionFalse, "Deleting", "the machine is being deleted")
	return ctrl.Result{RequeueAfter: r.Polls.Deletion}, r.patchStatus(ctx, base, p)
}

// applyHealth stages the verdict of the engine, or leaves what the status says until there is one.
func (r *Reconciler) applyHealth(p *proxy.Proxy) {
	verdict, known := r.Engine.Verdict(client.ObjectKeyFromObject(p))
	if !known {
		if meta.FindStatusCondition(p.Status.Conditions, "Healthy") == nil {
			condition(p, "Healthy", metav1.ConditionUnknown, "NotProbedYet", "the first probe is under way")
		}
		return
	}
	if verdict.healthy {
		condition(p, "Healthy", metav1.ConditionTrue, "ProbeSucceeded", "the last probe succeeded")
	} else {
		condition(p, "Healthy", metav1.ConditionFalse, "ProbeFailed", "the last probes failed")
	}
	latency := int32(min(verdict.latency.Milliseconds(), 1<<30))
	p.Status.LatencyMillis = &latency
	p.Status.LastHealthCheckTime = verdict.at.UTC().Format(time.RFC3339)
}

// patchStatus is the one writer of the status.
func (r *Reconciler) patchStatus(ctx context.Context, base, p *proxy.Proxy) error {
	p.Status.ObservedGeneration = p.Generation
	summarise(p)
	if equality.Semantic.DeepEqual(base.Status, p.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, p, client.MergeFrom(base)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if base.Status.Phase != p.Status.Phase {
		r.Events.Eventf(p, nil, corev1.EventTypeNormal, p.Status.Reason, "Reconcile", "the Proxy is %s", p.Status.Phase)
	}
	return nil
}

// summarise stages phase, reason and Ready, which follow from the other two conditions.
func summarise(p *proxy.Proxy) {
	provisioned := meta.FindStatusCondition(p.Status.Conditions, "Provisioned")
	healthy := meta.FindStatusCondition(p.Status.Conditions, "Healthy")
	status, decides := metav1.ConditionFalse, provisioned
	switch {
	case !p.DeletionTimestamp.IsZero():
		p.Status.Phase = "Deleting"
	case provisioned.Status != metav1.ConditionTrue || healthy == nil || healthy.Status == metav1.ConditionUnknown:
		p.Status.Phase = "Provisioning"
	case healthy.Status == metav1.ConditionTrue:
		p.Status.Phase, status, decides = "Ready", metav1.ConditionTrue, healthy
	default:
		p.Status.Phase, decides = "Unhealthy", healthy
	}
	p.Status.Reason = decides.Reason
	condition(p, proxy.Ready, status, decides.Reason, decides.Message)
}

func provisioned(p *proxy.Proxy, status metav1.ConditionStatus, reason, message string) {
	condition(p, "Provisioned", status, reason, message)
}

func condition(p *proxy.Proxy, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: p.Generation,
	})
}

func specHash(p *proxy.Proxy) (string, error) {
	text, err := json.Marshal(map[string]any{"provider": p.Spec.Provider, "port": p.Spec.Port})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "v1:" + hex.EncodeToString(sum[:]), nil
}
