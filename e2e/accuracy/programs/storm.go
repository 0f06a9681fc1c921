// SPDX-License-Identifier: Apache-2.0

// Allocates as a server does, objects of some sizes that die young; prints once a second "rate N", objects a CPU second.
package main

import (
	"fmt"
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
	since, said, n := cpu(), time.Now(), int64(0)
	for {
		for i := 0; i < 10000; i++ {
			sink = make([]byte, 32+i%512)
		}
		n += 10000
		if time.Since(said) >= time.Second {
			now := cpu()
			fmt.Println("rate", n*1e9/(now-since))
			since, said, n = now, time.Now(), 0
		}
	}
}
