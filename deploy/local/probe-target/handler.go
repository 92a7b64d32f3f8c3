package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const longestDelay = time.Minute

// newHandler answers the paths that the package documents.
func newHandler() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ok\n")
	})
	routes.HandleFunc("GET /address", answerAddress)
	routes.HandleFunc("GET /status/{code}", answerStatus)
	routes.HandleFunc("GET /delay/{milliseconds}", answerLate)
	return routes
}

func answerAddress(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, host)
}

func answerStatus(w http.ResponseWriter, r *http.Request) {
	// Below 200 an answer has not ended, and above 599 it is not HTTP.
	code, err := strconv.Atoi(r.PathValue("code"))
	if err != nil || code < 200 || code > 599 {
		http.Error(w, "the status must be a number from 200 to 599", http.StatusBadRequest)
		return
	}
	w.WriteHeader(code)
}

func answerLate(w http.ResponseWriter, r *http.Request) {
	milliseconds, err := strconv.Atoi(r.PathValue("milliseconds"))
	delay := time.Duration(milliseconds) * time.Millisecond
	if err != nil || delay < 0 || delay > longestDelay {
		http.Error(w, "the delay must be a number of milliseconds from 0 to 60000", http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(delay):
		io.WriteString(w, "ok\n")
	case <-r.Context().Done():
	}
}
