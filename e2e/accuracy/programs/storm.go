// SPDX-License-Identifier: Apache-2.0

// Allocates as a server does, objects of some sizes that die young. storm [MS [profile]]: prints
// each MS milliseconds "rate OBJECTS_A_CPU_SECOND OBJECTS CPU_NS", the last two since it began. The
// linker turns Go's own heap profile off in programs that never ask for it; this one does where it
// is built with storm_profile.go.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

var sink []byte

func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

func main() {
	ms := 1000
	if len(os.Args) > 1 {
		ms, _ = strconv.Atoi(os.Args[1])
	}
	period := time.Duration(ms) * time.Millisecond
	since, due, n, before := cpu(), time.Now().Add(period), int64(0), int64(0)
	for {
		for i := 0; i < 1000; i++ {
			sink = make([]byte, 32+i%512)
		}
		n += 1000
		if time.Now().Before(due) {
			continue
		}
		now := cpu()
		fmt.Println("rate", (n-before)*1e9/max(1, now-since), n, now)
		due = time.Now().Add(period)
		since, before = now, n
	}
}
