package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a child that dies with this program, however it ends.
type Process struct {
	name    string
	command *exec.Cmd
	ended   chan struct{}
	log     string
	began   time.Time
}

// starts carries children to the one thread that may start them: the kernel kills a child when the thread
// that started it ends, and Go ends threads as it likes, except those that are locked.
var starts = func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range work {
			start()
		}
	}()
	return work
}()

// startProcess starts a program with nothing but this environment; what it says goes to dir/name.log.
func startProcess(dir, name string, environment []string, program string, arguments ...string) (*Process, error) {
	path := filepath.Join(dir, name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Dir, command.Env = dir, environment
	command.Stdout, command.Stderr = log, log
	// Its own group: Ctrl-C reaches this program alone, which ends it in order.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	failed := make(chan error)
	process := &Process{name: name, command: command, ended: make(chan struct{}), log: path, began: time.Now()}
	starts <- func() { failed <- command.Start() }
	if err := <-failed; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = command.Wait()
		close(process.ended)
	}()
	return process, nil
}

// stop asks it to end, and insists after a while.
func (p *Process) stop(patience time.Duration) error {
	if p == nil {
		return nil
	}
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
	}
	_ = p.command.Process.Kill()
	<-p.ended
	if patience == 0 {
		return nil
	}
	return fmt.Errorf("%s had to be killed %v after it was told to end", p.name, patience)
}

// await waits until the check succeeds, and not longer than the process lives.
func (p *Process) await(patience time.Duration, check func() error) error {
	deadline := time.After(patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %s", p.name, p.tail())
		case <-deadline:
			return fmt.Errorf("%s is not ready after %v: %w: %s", p.name, patience, err, p.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *Process) tail() string {
	text, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\n" + strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// Usage is what the kernel says of a process.
type Usage struct {
	peakMiB, nowMiB, anonMiB float64
	cpu                      time.Duration
	threads                  int
}

func (p *Process) usage() (Usage, error) {
	pid := strconv.Itoa(p.command.Process.Pid)
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return Usage{}, err
	}
	fields := map[string]float64{}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		if words := strings.Fields(value); len(words) > 0 {
			fields[key], _ = strconv.ParseFloat(words[0], 64)
		}
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return Usage{}, err
	}
	_, after, found := strings.Cut(string(stat), ") ")
	words := strings.Fields(after)
	if !found || len(words) < 13 {
		return Usage{}, errors.New("/proc/PID/stat has another form than expected")
	}
	user, _ := strconv.Atoi(words[11])
	system, _ := strconv.Atoi(words[12])
	return Usage{
		peakMiB: fields["VmHWM"] / 1024, nowMiB: fields["VmRSS"] / 1024, anonMiB: fields["RssAnon"] / 1024,
		cpu: time.Duration(user+system) * 10 * time.Millisecond, threads: int(fields["Threads"]),
	}, nil
}
