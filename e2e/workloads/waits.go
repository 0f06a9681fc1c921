// SPDX-License-Identifier: Apache-2.0

// Known answer in Go: threads that wait in system calls, and goroutines that allocate, as waits.c
// does; prints the same lines. Its heap profile is on, as in every program that links
// runtime/pprof.
package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	pipe    [2]int
	escaped []byte
	leaked  [][]byte
	held    [64][]byte
)

//go:noinline
func naps() {
	t := syscall.NsecToTimespec(20e6)
	_ = syscall.Nanosleep(&t, nil)
}

//go:noinline
func readsPipe() {
	var b [1]byte
	if n, _ := syscall.Read(pipe[0], b[:]); n != 1 {
		panic("read")
	}
}

//go:noinline
func allocates() {
	for i := 0; i < 8; i++ {
		escaped = make([]byte, 65536)
	}
}

//go:noinline
func leaks() { leaked = append(leaked, make([]byte, 65536)) }

//go:noinline
func holds(on bool) {
	for i := range held {
		held[i] = nil
		if on {
			held[i] = make([]byte, 65536)
		}
	}
}

// The thread's: who calls it stays on it.
func cpu() int64 {
	const thread = 1
	var u syscall.Rusage
	_ = syscall.Getrusage(thread, &u)
	return u.Utime.Nano()/1000 + u.Stime.Nano()/1000
}

//go:noinline
func burns() {
	for end := cpu() + 10000; cpu() < end; {
	}
}

type row struct {
	name  string
	f     func()
	pause time.Duration
	bytes int64 // 0: it waits
	sum   atomic.Int64
}

func (r *row) run() {
	runtime.LockOSThread()
	for {
		before := time.Now()
		r.f()
		if r.bytes > 0 {
			r.sum.Add(r.bytes)
			time.Sleep(r.pause)
		} else {
			r.sum.Add(time.Since(before).Microseconds())
		}
	}
}

func main() {
	// Go samples a block of 64 KiB with a probability of 1 - exp(-8), so the 64 blocks of
	// `holds` are known within 5 %. With 16384 one snapshot in 150 misses five of them.
	runtime.MemProfileRate = 8192
	rows := []*row{
		{name: "naps", f: naps},
		{name: "readsPipe", f: readsPipe},
		{name: "allocates", f: allocates, pause: 100 * time.Millisecond, bytes: 8 * 65536},
		{name: "leaks", f: leaks, pause: 200 * time.Millisecond, bytes: 65536},
	}
	if syscall.Pipe(pipe[:]) != nil {
		panic("pipe")
	}
	for _, r := range rows {
		go r.run()
	}
	go func() {
		for ; ; time.Sleep(25 * time.Millisecond) {
			_, _ = syscall.Write(pipe[1], []byte("x"))
		}
	}()
	var holding atomic.Int64
	go func() {
		for on := true; ; on = !on {
			holds(on)
			holding.Store(0)
			if on {
				holding.Store(64 * 65536)
			}
			time.Sleep(20 * time.Second)
		}
	}()
	runtime.LockOSThread()
	for n := 0; ; n++ {
		burns()
		time.Sleep(90 * time.Millisecond)
		if n%10 > 0 {
			continue
		}
		runtime.GC() // the profile tells what a finished collection has seen
		line := fmt.Sprint("known ", time.Now().Unix())
		for _, r := range rows {
			line += fmt.Sprintf(" %s=%d", r.name, r.sum.Load())
		}
		fmt.Printf("%s burns=%d holds=%d\n", line, (n+1)*10000, holding.Load())
		_, _ = runtime.MemProfile(nil, false)
	}
}
