// SPDX-License-Identifier: Apache-2.0

// Known answer in Go: three functions that take 50, 30 and 20 % of the CPU time; prints its own
// split by the thread's CPU clock once a second, as shares.c does.
package main

import (
	"fmt"
	"math/rand"
	"runtime"
	"syscall"
	"time"
)

const sliceUs = 1000

var sink uint64

func threadUs() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(1 /* RUSAGE_THREAD */, &u)
	return u.Utime.Sec*1e6 + u.Utime.Usec + u.Stime.Sec*1e6 + u.Stime.Usec
}

//go:noinline
func share50(until int64) {
	for ok := true; ok; ok = threadUs() < until {
		x := sink | 1
		for i := 0; i < 20000; i++ {
			x = x*6364136223846793005 + 1
		}
		sink = x
	}
}

//go:noinline
func share30(until int64) {
	for ok := true; ok; ok = threadUs() < until {
		x := sink | 1
		for i := 0; i < 20000; i++ {
			x = x*2862933555777941757 + 1
		}
		sink = x
	}
}

//go:noinline
func share20(until int64) {
	for ok := true; ok; ok = threadUs() < until {
		x := sink | 1
		for i := 0; i < 20000; i++ {
			x = x*3202034522624059733 + 1
		}
		sink = x
	}
}

//go:noinline
func work(dice int) int {
	until := threadUs() + sliceUs
	switch {
	case dice < 5:
		share50(until)
		return 0
	case dice < 8:
		share30(until)
		return 1
	}
	share20(until)
	return 2
}

func main() {
	runtime.LockOSThread()
	var spentUs [3]int64
	last := time.Time{}
	for {
		before := threadUs()
		which := work(rand.Intn(10))
		spentUs[which] += threadUs() - before
		if now := time.Now(); now.Sub(last) >= time.Second {
			last = now
			fmt.Println("split", now.Unix(), spentUs[0], spentUs[1], spentUs[2])
		}
	}
}
