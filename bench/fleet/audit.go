package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Call is a request of a contestant, as the API server wrote it down when it had answered.
type Call struct {
	at                                     time.Time
	verb, resource, subresource, name, uri string
	code                                   int
}

// Audit is the API server's log of what the contestants asked for.
type Audit struct {
	path   string
	offset int64
	calls  []Call
}

type auditLine struct {
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

// read takes in what has been written since the last time. A line that is not whole yet waits.
func (a *Audit) read() error {
	file, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		a.offset += int64(len(text))
		var line auditLine
		if err := json.Unmarshal(bytes.TrimSpace(text), &line); err != nil {
			return fmt.Errorf("%s: %w", a.path, err)
		}
		a.calls = append(a.calls, Call{
			at: line.Received, verb: line.Verb, uri: line.URI, code: line.ResponseStatus.Code,
			resource: line.ObjectRef.Resource, subresource: line.ObjectRef.Subresource, name: line.ObjectRef.Name,
		})
	}
}

// between gives the calls that came in from one moment to another.
func (a *Audit) between(from, to time.Time) []Call {
	var found []Call
	for _, call := range a.calls {
		if !call.at.Before(from) && call.at.Before(to) {
			found = append(found, call)
		}
	}
	return found
}

func (c Call) isWrite() bool {
	switch c.verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	default:
		return false
	}
}

// Counts of calls.
type Counts struct {
	proxyWrites, statusWrites int // statuses are among the writes to Proxies
	machineWrites, events     int
	machinesMade              int
	refused                   int // writes that the API server did not accept, among none of the above
	leadership                int // renewals of the leader's Lease
	reads                     int
	lastWrite                 time.Time
}

func count(calls []Call) Counts {
	var c Counts
	for _, call := range calls {
		if !call.isWrite() {
			if call.verb != "watch" {
				c.reads++
			}
			continue
		}
		if call.code >= 400 {
			c.refused++
			continue
		}
		if call.resource == "leases" {
			c.leadership++
			continue
		}
		if call.at.After(c.lastWrite) {
			c.lastWrite = call.at
		}
		switch call.resource {
		case "proxies":
			c.proxyWrites++
			if call.subresource == "status" {
				c.statusWrites++
			}
		case "events":
			c.events++
		case "pods":
			if call.verb == "create" {
				c.machinesMade++
			}
			c.machineWrites++
		default:
			c.machineWrites++
		}
	}
	return c
}

// looks says of how many machines a contestant has learned how they are, and when it had of the last one.
// A list shows all of them.
func looks(calls []Call, machines int) (count int, last time.Time) {
	seen := map[string]bool{}
	for _, call := range calls {
		if call.resource != "pods" || call.subresource != "" {
			continue
		}
		switch {
		case call.verb == "get" && !seen[call.name]:
			seen[call.name] = true
			last = call.at
		case call.verb == "list" && len(seen) < machines:
			return machines, call.at
		}
	}
	return len(seen), last
}
