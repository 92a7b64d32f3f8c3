// Command probe-target is the page at the far end: what is fetched through a
// proxy in the demo and the tests, so that neither needs the internet.
//
//	GET /             200 "ok"
//	GET /address      200 and the address that the request came from
//	GET /status/NNN   that status
//	GET /delay/MS     200 after that many milliseconds, one minute at most
//
// It serves HTTP, and HTTPS too where a certificate is mounted. It must never
// need anything else: it runs without a user, a shell or a file system.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	httpAddress := flag.String("http", ":8080", "where to serve HTTP")
	httpsAddress := flag.String("https", ":8443", "where to serve HTTPS")
	certificate := flag.String("certificate", "/etc/probe-target/tls.crt", "certificate for HTTPS; without this file there is no HTTPS")
	key := flag.String("key", "/etc/probe-target/tls.key", "private key for HTTPS")
	flag.Parse()

	plain := newServer(*httpAddress)
	secure := newServer(*httpsAddress)
	ended := make(chan error, 2)
	go func() { ended <- plain.ListenAndServe() }()
	log.Printf("serving HTTP on %s", *httpAddress)
	if _, err := os.Stat(*certificate); err == nil {
		go func() { ended <- secure.ListenAndServeTLS(*certificate, *key) }()
		log.Printf("serving HTTPS on %s", *httpsAddress)
	} else {
		log.Printf("no HTTPS: %v", err)
	}

	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	select {
	case err := <-ended:
		log.Fatalf("cannot serve: %v", err)
	case <-told.Done():
		shutDown(plain, secure)
	}
}

func newServer(address string) *http.Server {
	return &http.Server{
		Addr:              address,
		Handler:           newHandler(),
		ReadHeaderTimeout: 10 * time.Second,
	}
}

// shutDown lets answers that are under way finish, for five seconds at most.
func shutDown(servers ...*http.Server) {
	limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, server := range servers {
		if err := server.Shutdown(limit); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Printf("stopping: %v", err)
		}
	}
}
