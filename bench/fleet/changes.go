package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"egress-proxies.io/bench/proxy"
)

// shownChanges is how many are printed: a fleet that does not rest has thousands of them.
const shownChanges = 10

// change is a status that was written, as the owner of the fleet sees it: what a promise of no writes is asked about.
type change struct {
	at   time.Time
	name string
	what string
}

// changed compares two statuses field by field; nothing is said of those that are the same.
func changed(before, after *proxy.Proxy) (change, bool) {
	old, now := statusFields(before.Status), statusFields(after.Status)
	names := maps.Clone(old)
	maps.Copy(names, now)
	var what []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !reflect.DeepEqual(old[name], now[name]) {
			what = append(what, fmt.Sprintf("%s %s -> %s", name, written(old[name]), written(now[name])))
		}
	}
	return change{at: time.Now(), name: after.Name, what: strings.Join(what, ", ")}, len(what) > 0
}

func statusFields(status proxy.Status) map[string]any {
	found := map[string]any{}
	text, err := json.Marshal(status)
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		found["unreadable"] = err.Error()
	}
	return found
}

func written(value any) string {
	if value == nil {
		return "none"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// reportChanges says what was written to a fleet that should rest.
func reportChanges(to io.Writer, of *Figures) {
	if of == nil || len(of.changes) == 0 {
		return
	}
	fmt.Fprintf(to, "\nWhat the %s wrote at rest:\n", of.name)
	for _, one := range of.changes[:min(len(of.changes), shownChanges)] {
		fmt.Fprintf(to, "  %s, %.1f s after the rest began: %s\n", one.name, one.at.Sub(of.restBegan).Seconds(), one.what)
	}
	if more := len(of.changes) - shownChanges; more > 0 {
		fmt.Fprintf(to, "  and %d more\n", more)
	}
}
