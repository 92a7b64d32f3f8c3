package main

import (
	"fmt"
	"io"
	"time"
)

// line is a figure of both contestants.
type line struct {
	text    string
	of      func(Figures) float64
	unit    string
	promise *promise
}

// promise is what the operator must keep; some are about the ratio and need both contestants.
type promise struct {
	says  string
	ratio bool
	kept  func(value float64) bool
}

func atMost(limit float64, says string) *promise {
	return &promise{says: says, kept: func(value float64) bool { return value <= limit }}
}

func ratioAtMost(limit float64, says string) *promise {
	return &promise{says: says, ratio: true, kept: func(value float64) bool { return value <= limit }}
}

// surveyEvery is how often the operator looks at a fleet by a list: two thirds of its drift poll.
const surveyEvery = 40 * time.Second

// lists is how many of these there can be in a time.
func lists(in time.Duration) int {
	return int(in/surveyEvery) + 1
}

// lines are the figures in the order of the phases.
func lines(fleet int) []line {
	perProxy := func(of func(Figures) int) func(Figures) float64 {
		return func(f Figures) float64 { return float64(of(f)) / float64(fleet) }
	}
	perMinute := func(of func(Figures) int) func(Figures) float64 {
		return func(f Figures) float64 { return float64(of(f)) / float64(fleet) / max(f.steady, time.Second).Minutes() }
	}
	whole := func(of func(Figures) int) func(Figures) float64 {
		return func(f Figures) float64 { return float64(of(f)) }
	}
	seconds := func(of func(Figures) time.Duration) func(Figures) float64 {
		return func(f Figures) float64 { return of(f).Seconds() }
	}
	none := atMost(0, "0")
	return []line{
		{"first create to all Ready", seconds(func(f Figures) time.Duration { return f.readyAll }), "s",
			ratioAtMost(0.5, "half the time")},
		{"first create to half of them Ready", seconds(func(f Figures) time.Duration { return f.readyHalf }), "s", nil},
		{"CPU of API server and etcd until then, all", seconds(func(f Figures) time.Duration { return f.planeCPU }), "s", nil},
		{"first create to the last write, an Event", seconds(func(f Figures) time.Duration { return f.written }), "s", nil},
		{"writes to each Proxy until Ready", perProxy(func(f Figures) int { return f.making.proxyWrites }), "",
			atMost(3, "3")},
		{"  writes that were refused, all Proxies", whole(func(f Figures) int { return f.making.refused }), "", nil},
		{"writes to each machine (Pod, Secret)", perProxy(func(f Figures) int { return f.making.machineWrites }), "", nil},
		{"Events for each Proxy", perProxy(func(f Figures) int { return f.making.events }), "", nil},
		{"reads for each Proxy", perProxy(func(f Figures) int { return f.making.reads }), "", nil},
		{"CPU time for each Proxy", func(f Figures) float64 { return f.makingCPU.Seconds() * 1e3 / float64(fleet) }, "ms", nil},
		{"memory, at its peak", func(f Figures) float64 { return f.peak.peakMiB }, "MiB",
			ratioAtMost(1, "no more")},
		{"memory at that time, without mapped files", func(f Figures) float64 { return f.peak.anonMiB }, "MiB", nil},
		{"restart: settled after", seconds(func(f Figures) time.Duration { return f.settled }), "s",
			atMost(settlesWithin.Seconds(), "10 s")},
		{"restart: all probed four times after", seconds(func(f Figures) time.Duration { return f.probed }), "s", nil},
		{"restart: machines made", whole(func(f Figures) int { return f.restart.machinesMade }), "", none},
		{"restart: status writes of the first settling", whole(func(f Figures) int { return f.restart.statusWrites }), "", nil},
		{"at rest: status writes", whole(func(f Figures) int { return f.rest.statusWrites }), "", none},
		{"at rest: other writes", whole(func(f Figures) int {
			return f.rest.proxyWrites - f.rest.statusWrites + f.rest.machineWrites + f.rest.events + f.rest.refused
		}), "", none},
		{"at rest: renewals of the leadership per minute", func(f Figures) float64 { return float64(f.rest.leadership) / max(f.steady, time.Second).Minutes() }, "", nil},
		{"at rest: reconciles per Proxy and minute", perMinute(func(f Figures) int { return f.restReconciles }), "", nil},
		{"at rest: reconciles beside one after each list", whole(func(f Figures) int { return max(0, f.restReconciles-fleet*lists(f.steady)) }), "",
			atMost(float64(fleet)/100, "0, but for the edges")},
		{"at rest: reads per Proxy and minute", perMinute(func(f Figures) int { return f.rest.reads }), "",
			atMost(0.1, "lists, and each machine twice in an hour")},
		{"at rest: probes per Proxy and minute", perMinute(func(f Figures) int { return f.probes }), "", nil},
		{"at rest: CPU, of one core", func(f Figures) float64 { return 100 * f.restCPU.Seconds() / max(f.steady, time.Second).Seconds() }, "%", nil},
		{"at rest: memory", func(f Figures) float64 { return f.resting.nowMiB }, "MiB",
			ratioAtMost(1, "no more")},
		{"at rest: memory without mapped files", func(f Figures) float64 { return f.resting.anonMiB }, "MiB", nil},
		{"at rest: Proxies that are not Ready", func(f Figures) float64 { return float64(fleet - f.readyAtEnd) }, "", none},
		{"delete: all Proxies gone after", seconds(func(f Figures) time.Duration { return f.deleting }), "s", nil},
		{"delete: machines left", whole(func(f Figures) int { return f.machinesLeft }), "", none},
		{"delete: Secrets left", whole(func(f Figures) int { return f.secretsLeft }), "", none},
	}
}

// report prints both side by side; either may be missing. It counts the promises that were not kept.
func report(to io.Writer, fleet int, operator, peer *Figures) (missed int) {
	fmt.Fprintf(to, "\n%-46s %12s %12s %7s  %s\n", fmt.Sprintf("%d Proxies", fleet), "operator", "plain loop", "ratio", "promised")
	for _, one := range lines(fleet) {
		value := func(f *Figures) string {
			if f == nil {
				return "-"
			}
			return fmt.Sprintf("%s %-3s", number(one.of(*f)), one.unit)
		}
		ratio, quotient := "", 0.0
		if operator != nil && peer != nil && one.of(*peer) != 0 {
			quotient = one.of(*operator) / one.of(*peer)
			ratio = fmt.Sprintf("%.2f", quotient)
		}
		said := ""
		if one.promise != nil && operator != nil && (ratio != "" || !one.promise.ratio) {
			judged := one.of(*operator)
			if one.promise.ratio {
				judged = quotient
			}
			said = one.promise.says + ": kept"
			if !one.promise.kept(judged) {
				said = one.promise.says + ": MISSED"
				missed++
			}
		}
		fmt.Fprintf(to, "%-46s %12s %12s %7s  %s\n", one.text, value(operator), value(peer), ratio, said)
	}
	return missed
}

// reportBare says how near the operator is to what its writes alone take.
func reportBare(to io.Writer, bare Figures, operator, peer *Figures) {
	fmt.Fprintf(to, "\nThe operator's writes alone, sent by a program that decides, probes and tells nothing: all Ready %.1f s "+
		"after the first create,\nof which API server and etcd work for %.1f s of processor time", bare.readyAll.Seconds(), bare.planeCPU.Seconds())
	if operator != nil && bare.readyAll > 0 {
		fmt.Fprintf(to, ". The operator takes %.2f of that time", operator.readyAll.Seconds()/bare.readyAll.Seconds())
	}
	if peer != nil && peer.readyAll > 0 {
		fmt.Fprintf(to, "; it is %.2f of the plain loop's", bare.readyAll.Seconds()/peer.readyAll.Seconds())
	}
	fmt.Fprintln(to, ".")
}

func number(value float64) string {
	if value == float64(int64(value)) {
		return fmt.Sprintf("%d", int64(value))
	}
	return fmt.Sprintf("%.2f", value)
}
