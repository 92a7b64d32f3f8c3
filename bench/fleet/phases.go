package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"egress-proxies.io/bench/proxy"
)

const (
	patience = 5 * time.Minute
	// After the last sign of work, before anything is counted.
	quiet = 3 * time.Second
	// The promise about a restart, and what is looked at for it.
	settlesWithin = 10 * time.Second
)

// Figures of one contestant.
type Figures struct {
	name                 string
	creating             time.Duration // until the API server had taken all creates
	readyHalf, readyAll  time.Duration // from the first create
	written              time.Duration // the last write of all, an Event
	planeCPU             time.Duration // of etcd and API server until all were Ready
	making               Counts
	makingCPU            time.Duration
	peak                 Usage
	settled, probed      time.Duration // from the start of the process
	restart              Counts
	steady               time.Duration
	restBegan            time.Time
	rest                 Counts
	changes              []change
	restReconciles       int
	restCPU              time.Duration
	resting              Usage
	probes, probeRefused int
	readyAtEnd           int
	deleting             time.Duration
	machinesLeft         int
	secretsLeft          int
	unmaking             Counts
}

// Trial is a contestant's time with an API server of its own.
type Trial struct {
	set      Settings
	plane    *ControlPlane
	machines *Machines
	node     *Node
	proxies  *Proxies
	audit    *Audit
	running  *Running
	figures  Figures
	sample   *Sample
}

// try takes one contestant through all phases, and brings back what it made of a Proxy.
func try(ctx context.Context, set Settings, contestant Contestant, dir string) (_ Figures, _ *Sample, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &Trial{set: set, figures: Figures{name: contestant.name}}
	defer t.tearDown()
	if err := t.setUp(ctx, dir); err != nil {
		return t.figures, nil, err
	}
	if t.running, err = contestant.start(t.plane, "first"); err != nil {
		return t.figures, nil, err
	}
	for _, phase := range []func(context.Context) error{t.makeAll, t.restart, t.rest, t.deleteAll} {
		if err := phase(ctx); err != nil {
			_, fault := t.node.ran()
			return t.figures, nil, errors.Join(err, fault)
		}
	}
	return t.figures, t.sample, nil
}

func (t *Trial) setUp(ctx context.Context, dir string) (err error) {
	if t.plane, err = startControlPlane(dir, t.set.bin); err != nil {
		return err
	}
	repository := func(path string) string { return filepath.Join(t.set.repository, path) }
	files := []string{"crds", "deploy/base", "bench/fleet/manifests.yaml"}
	for _, file := range files {
		if _, err := t.plane.kubectl("apply", "-f", repository(file)); err != nil {
			return err
		}
	}
	if _, err := t.plane.kubectl("wait", "--for=condition=Established", "crd/proxies."+proxy.GroupVersion.Group); err != nil {
		return err
	}
	// Some to spare, for a contestant that makes a machine anew.
	if t.machines, err = startMachines(t.set.fleet + t.set.fleet/10 + 10); err != nil {
		return err
	}
	if t.node, err = startNode(ctx, t.plane.config(), t.machines); err != nil {
		return err
	}
	if t.proxies, err = startProxies(ctx, t.plane.config()); err != nil {
		return err
	}
	t.audit = &Audit{path: t.plane.auditLog()}
	return nil
}

func (t *Trial) tearDown() {
	if t.running != nil {
		_ = t.running.stop(0)
	}
	if t.plane != nil {
		t.plane.stop()
	}
	if t.machines != nil {
		t.machines.stop()
	}
}

// makeAll creates the fleet and waits until every Proxy is Ready.
func (t *Trial) makeAll(ctx context.Context) error {
	before, err := t.running.usage()
	if err != nil {
		return err
	}
	plane, began := t.plane.cpu(), time.Now()
	if err := t.proxies.create(ctx, t.set.fleet, t.machines.port); err != nil {
		return err
	}
	t.figures.creating = time.Since(began)
	err = t.until(ctx, func() (bool, string) {
		ready := len(t.proxies.readyTimes())
		return ready >= t.set.fleet, fmt.Sprintf("%d of %d are Ready", ready, t.set.fleet)
	})
	if err != nil {
		return err
	}
	t.figures.planeCPU = t.plane.cpu() - plane
	times := t.proxies.readyTimes()
	slices.SortFunc(times, time.Time.Compare)
	t.figures.readyHalf, t.figures.readyAll = times[len(times)/2].Sub(began), times[len(times)-1].Sub(began)
	// Events may come behind; they belong to the making.
	err = t.until(ctx, func() (bool, string) {
		calls, err := t.calls(began, time.Now())
		if err != nil {
			return false, err.Error()
		}
		t.figures.making = count(calls)
		return time.Since(t.figures.making.lastWrite) > quiet, "it goes on writing"
	})
	if err != nil {
		return err
	}
	if t.figures.peak, err = t.running.usage(); err != nil {
		return err
	}
	t.figures.makingCPU = t.figures.peak.cpu - before.cpu
	t.figures.written = t.figures.making.lastWrite.Sub(began)
	t.say("all Ready %.1f s after the first create", t.figures.readyAll.Seconds())
	if t.figures.name != "operator" {
		return nil
	}
	return t.takeSample(ctx)
}

// restart ends the contestant, starts it anew, and sees what it does to a fleet that needs nothing.
func (t *Trial) restart(ctx context.Context) error {
	if err := t.running.stop(endsWithin); err != nil {
		return err
	}
	t.machines.watchProbes()
	began := time.Now()
	again, err := t.running.contestant.start(t.plane, "second")
	if err != nil {
		return err
	}
	t.running = again
	began = again.began
	err = t.until(ctx, func() (bool, string) {
		calls, err := t.calls(began, time.Now())
		if err != nil {
			return false, err.Error()
		}
		looked, _ := looks(calls, t.set.fleet)
		return looked >= t.set.fleet, fmt.Sprintf("it has looked at %d of %d machines", looked, t.set.fleet)
	})
	if err != nil {
		return err
	}
	if err := pause(ctx, max(quiet, settlesWithin-time.Since(began))); err != nil {
		return err
	}
	calls, err := t.calls(began, time.Now())
	if err != nil {
		return err
	}
	_, settled := looks(calls, t.set.fleet)
	if last := count(calls).lastWrite; last.After(settled) {
		settled = last
	}
	t.figures.settled = settled.Sub(began)
	// The fleet is at rest once every verdict is settled again.
	err = t.until(ctx, func() (bool, string) {
		probed, last := t.machines.settledProbes()
		t.figures.probed = last.Sub(began)
		return probed >= t.set.fleet, fmt.Sprintf("%d of %d were probed %d times", probed, t.set.fleet, settles)
	})
	if err != nil {
		return err
	}
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	calls, err = t.calls(began, time.Now())
	if err != nil {
		return err
	}
	t.figures.restart = count(calls)
	t.say("settled %.1f s after its restart", t.figures.settled.Seconds())
	return nil
}

// rest watches a fleet at rest.
func (t *Trial) rest(ctx context.Context) error {
	began := time.Now()
	reconciled, err := t.running.reconciled()
	if err != nil {
		return err
	}
	before, err := t.running.usage()
	if err != nil {
		return err
	}
	t.machines.watchProbes()
	t.proxies.watchChanges()
	if err := pause(ctx, t.set.steady); err != nil {
		return err
	}
	calls, err := t.calls(began, time.Now())
	if err != nil {
		return err
	}
	f := &t.figures
	f.steady, f.rest = time.Since(began), count(calls)
	f.restBegan, f.changes = began, t.proxies.changesSince()
	f.probes, f.probeRefused = t.machines.counts()
	after, err := t.running.reconciled()
	if err != nil {
		return err
	}
	f.restReconciles = after - reconciled
	if f.resting, err = t.running.usage(); err != nil {
		return err
	}
	f.restCPU, f.readyAtEnd = f.resting.cpu-before.cpu, t.proxies.readyNow()
	t.say("%.0f s at rest: %d status writes", f.steady.Seconds(), f.rest.statusWrites)
	return nil
}

// deleteAll deletes every Proxy and counts what is left of the machines.
func (t *Trial) deleteAll(ctx context.Context) error {
	began := time.Now()
	if err := t.proxies.deleteAll(ctx, t.set.fleet); err != nil {
		return err
	}
	err := t.until(ctx, func() (bool, string) {
		gone := len(t.proxies.goneTimes())
		return gone >= t.set.fleet, fmt.Sprintf("%d of %d are gone", gone, t.set.fleet)
	})
	if err != nil {
		return err
	}
	f := &t.figures
	f.deleting = slices.MaxFunc(t.proxies.goneTimes(), time.Time.Compare).Sub(began)
	// Counted at once: whoever lets a Proxy go must have seen its machine go first. Secrets go with their Pods,
	// by the garbage collector's hand and in its time.
	if f.machinesLeft, _, err = t.node.left(ctx); err != nil {
		return err
	}
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	if _, f.secretsLeft, err = t.node.left(ctx); err != nil {
		return err
	}
	calls, err := t.calls(began, time.Now())
	f.unmaking = count(calls)
	t.say("all gone %.1f s after the first delete, %d machines left", f.deleting.Seconds(), f.machinesLeft)
	return err
}

func (t *Trial) calls(from, to time.Time) ([]Call, error) {
	if err := t.audit.read(); err != nil {
		return nil, err
	}
	return t.audit.between(from, to), nil
}

// until waits for something that must come, while the contestant lives.
func (t *Trial) until(ctx context.Context, done func() (bool, string)) error {
	deadline := time.After(patience)
	for {
		is, state := done()
		if is {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.running.ended:
			return fmt.Errorf("the %s ended: %s", t.figures.name, t.running.tail())
		case <-deadline:
			return fmt.Errorf("%s: %s after %v: %s", t.figures.name, state, patience, t.running.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (t *Trial) say(format string, values ...any) {
	fmt.Printf("  %s: %s\n", t.figures.name, fmt.Sprintf(format, values...))
}

func pause(ctx context.Context, span time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(span):
		return nil
	}
}
