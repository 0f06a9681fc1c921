// SPDX-License-Identifier: Apache-2.0

// A service with net/http/pprof on port 6060 and nothing of podflame in it. It keeps 64 MiB that
// keep allocated, and all the time uses some CPU, allocates in allocate and waits for a mutex that
// hold keeps.
package main

import (
	"log"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"sync"
	"time"
)

var (
	kept []byte
	last []byte
	lock sync.Mutex
)

//go:noinline
func keep() { kept = make([]byte, 64<<20) }

//go:noinline
func allocate() { last = make([]byte, 1<<20) }

//go:noinline
func hold() {
	lock.Lock()
	for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); {
	}
	lock.Unlock()
}

func main() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	keep()
	for i := 0; i < 2; i++ {
		go func() {
			for {
				hold()
				allocate()
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	log.Fatal(http.ListenAndServe(":6060", nil))
}
