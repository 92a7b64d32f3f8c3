// Command fleet is the benchmark of a whole fleet: it starts a real etcd and kube-apiserver, plays the node
// that its Pods run on, and takes the operator and a plain controller-runtime loop of the same behaviour
// through the same phases, one after the other: make all, restart, rest, delete all. See docs/benchmarks.md.
//
// What a contestant asks of the API server is counted by the API server. Everything stays on loopback; every
// child dies with this program; what it writes is in a temporary folder that it removes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Settings of a run.
type Settings struct {
	fleet                        int
	steady                       time.Duration
	bin, operator, peer          string
	component, store, repository string
	only                         string
	keep                         bool
}

func main() {
	var set Settings
	flag.IntVar(&set.fleet, "fleet", 1000, "Proxies")
	flag.DurationVar(&set.steady, "steady", 5*time.Minute, "how long the fleet is watched at rest")
	flag.StringVar(&set.bin, "bin", "", "folder with etcd, kube-apiserver and kubectl")
	flag.StringVar(&set.operator, "operator", "", "the operator's program")
	flag.StringVar(&set.peer, "peer", "", "the plain loop's program")
	flag.StringVar(&set.component, "component", "", "the kubernetes provider's component")
	flag.StringVar(&set.store, "store", "", "folder for compiled components")
	flag.StringVar(&set.repository, "repository", ".", "where crds/ and deploy/base are")
	flag.StringVar(&set.only, "only", "", "operator or peer: leave the other out")
	flag.BoolVar(&set.keep, "keep", false, "keep the folder with the logs")
	flag.Parse()
	// Watches complain when their server is stopped, which happens here all the time; what counts comes as an error.
	klog.SetLogger(logr.Discard())
	if err := run(set); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(set Settings) error {
	if set.fleet < 1 || set.fleet > 10_000 || set.steady < time.Second || set.steady > time.Hour {
		return fmt.Errorf("-fleet is 1 to 10000 and -steady 1s to 1h, not %d and %v", set.fleet, set.steady)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dir, err := os.MkdirTemp("", "epo-bench-")
	if err != nil {
		return err
	}
	if set.keep {
		fmt.Println("logs:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	figures := map[string]*Figures{}
	var sample *Sample
	for _, contestant := range []Contestant{peer(set), operator(set)} {
		if set.only != "" && set.only != contestant.account && !strings.HasPrefix(contestant.name, set.only) {
			continue
		}
		own := filepath.Join(dir, contestant.account)
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		found, made, err := try(ctx, set, contestant, own)
		figures[contestant.name], sample = &found, made
		if err != nil {
			// What came before may have taken a quarter of an hour: it is shown.
			report(os.Stdout, set.fleet, figures["operator"], figures["plain loop"])
			return fmt.Errorf("%s did not get through; figures of phases that it did not reach are 0: %w", contestant.name, err)
		}
	}
	if missed := report(os.Stdout, set.fleet, figures["operator"], figures["plain loop"]); missed > 0 {
		fmt.Printf("%d promises missed\n", missed)
	}
	reportChanges(os.Stdout, figures["operator"])
	if sample == nil {
		return nil
	}
	alone, err := bare(ctx, set, sample, dir)
	if err != nil {
		return fmt.Errorf("the operator's writes alone did not get through: %w", err)
	}
	reportBare(os.Stdout, alone, figures["operator"], figures["plain loop"])
	return nil
}
