package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestAnswers(t *testing.T) {
	handler := newHandler()
	for _, test := range []struct {
		path   string
		status int
		body   string
	}{
		{"/", 200, "ok\n"},
		{"/address", 200, "192.0.2.1\n"},
		{"/status/204", 204, ""},
		{"/status/503", 503, ""},
		{"/status/199", 400, "the status must be a number from 200 to 599\n"},
		{"/status/600", 400, "the status must be a number from 200 to 599\n"},
		{"/status/x", 400, "the status must be a number from 200 to 599\n"},
		{"/delay/0", 200, "ok\n"},
		{"/delay/-1", 400, "the delay must be a number of milliseconds from 0 to 60000\n"},
		{"/delay/60001", 400, "the delay must be a number of milliseconds from 0 to 60000\n"},
		{"/delay/9223372036854775807", 400, "the delay must be a number of milliseconds from 0 to 60000\n"},
		{"/other", 404, "404 page not found\n"},
	} {
		t.Run(test.path, func(t *testing.T) {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, test.path, nil))
			if answer.Code != test.status || answer.Body.String() != test.body {
				t.Errorf("got %d %q, want %d %q", answer.Code, answer.Body, test.status, test.body)
			}
		})
	}
}

func TestDelayIsKept(t *testing.T) {
	began := time.Now()
	newHandler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/delay/50", nil))
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("answered after %s, want 50 ms or more", took)
	}
}
