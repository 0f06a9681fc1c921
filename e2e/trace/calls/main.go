// SPDX-License-Identifier: Apache-2.0

// Calls in Go, instrumented with OpenTelemetry: two workers serve calls of three traces, in shares
// of 50, 30 and 20 %, and work a fifth of the time outside of any. A span processor gives the
// span's ids to the goroutine as labels of runtime/pprof, as Grafana's otel-profiling-go does. Says
// at the end how much CPU time each trace and each span really had, by the clock of the thread.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

// labels puts the ids of the span that starts on its goroutine, and its parent's back when it ends.
type labels struct{ parents sync.Map }

func (l *labels) OnStart(parent context.Context, s trace.ReadWriteSpan) {
	c := s.SpanContext()
	l.parents.Store(c.SpanID(), parent)
	pprof.SetGoroutineLabels(pprof.WithLabels(parent, pprof.Labels(
		"trace_id", c.TraceID().String(), "span_id", c.SpanID().String(),
		"span_name", s.Name())))
}

func (l *labels) OnEnd(s trace.ReadOnlySpan) {
	if parent, ok := l.parents.LoadAndDelete(s.SpanContext().SpanID()); ok {
		pprof.SetGoroutineLabels(parent.(context.Context))
	}
}
func (l *labels) Shutdown(context.Context) error   { return nil }
func (l *labels) ForceFlush(context.Context) error { return nil }

type truth struct {
	sync.Mutex
	Pid    int              `json:"pid"`
	Cpu    int64            `json:"cpu"` // of the process; microseconds, as below
	Traces map[string]int64 `json:"traces"`
	Spans  map[string]int64 `json:"spans"`
}

func (t *truth) add(c api.SpanContext, us int64) {
	t.Lock()
	defer t.Unlock()
	t.Traces[c.TraceID().String()] += us
	t.Spans[c.SpanID().String()] += us
}

func usedUs(who int) int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(who, &u)
	return (u.Utime.Sec+u.Stime.Sec)*1e6 + u.Utime.Usec + u.Stime.Usec
}

func threadUs() int64 { return usedUs(1 /* RUSAGE_THREAD */) }

//go:noinline
func burn(us int64) int64 {
	begin, x := threadUs(), uint64(1)
	for threadUs() < begin+us {
		for i := 0; i < 20000; i++ {
			x = x*6364136223846793005 + 1
		}
	}
	if x == 0 {
		fmt.Print()
	}
	return threadUs() - begin
}

func serve(t *truth, tracer api.Tracer, roots []context.Context, until time.Time) {
	runtime.LockOSThread() // so that its clock is the worker's
	for time.Now().Before(until) {
		if rand.Intn(100) < 20 {
			burn(20000)
			continue
		}
		root := roots[0]
		if dice := rand.Intn(100); dice >= 80 {
			root = roots[2]
		} else if dice >= 50 {
			root = roots[1]
		}
		_, span := tracer.Start(root, "serve")
		us := burn(40000)
		span.End()
		t.add(span.SpanContext(), us)
	}
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is profiled
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(&labels{}))
	tracer, before := provider.Tracer("calls"), usedUs(syscall.RUSAGE_SELF)
	t := &truth{Pid: os.Getpid(), Traces: map[string]int64{}, Spans: map[string]int64{}}
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	var roots []context.Context
	for i := 0; i < 3; i++ {
		ctx, span := tracer.Start(context.Background(), "root")
		span.End()
		roots = append(roots, ctx)
	}
	pprof.SetGoroutineLabels(context.Background())
	var done sync.WaitGroup
	for i := 0; i < 2; i++ {
		done.Add(1)
		go func() { defer done.Done(); serve(t, tracer, roots, until) }()
	}
	done.Wait()
	t.Cpu = usedUs(syscall.RUSAGE_SELF) - before
	_ = json.NewEncoder(os.Stdout).Encode(t)
}
