// SPDX-License-Identifier: Apache-2.0

// A program that Pyroscope's SDK profiles: main ADDRESS TOKEN_FILE [each|once]. It works, waits for
// locks and channels, keeps memory, and says when all of that was pushed. When it then reads a
// line, it works and pushes again: the file has another token by then. With "each" or "once" it
// goes on until it is killed, and pushes each 10 s; "once": with the token that it read first.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/grafana/pyroscope-go"
)

var kept [][]byte

// The token of each request is that of the file at the time: the kubelet replaces it.
type tokenFile string

func (file tokenFile) Do(r *http.Request) (*http.Response, error) {
	token, err := os.ReadFile(string(file))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return http.DefaultClient.Do(r)
}

// tokenOnce has the wrong way to do it: the token of the file when the program began.
type tokenOnce string

func (token tokenOnce) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultClient.Do(r)
}

type client interface {
	Do(r *http.Request) (*http.Response, error)
}

func clientOf(file, how string) client {
	if how != "once" {
		return tokenFile(file)
	}
	token, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return tokenOnce(strings.TrimSpace(string(token)))
}

// What fails is said, and nothing else.
type errorLog struct{}

func (errorLog) Infof(string, ...interface{})  {}
func (errorLog) Debugf(string, ...interface{}) {}
func (errorLog) Errorf(format string, args ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

//go:noinline
func busyLater(until time.Time) int { return busyCheckout(until) }

//go:noinline
func busyCheckout(until time.Time) (n int) {
	for time.Now().Before(until) {
		for i := 0; i < 100000; i++ {
			n += i * i
		}
	}
	return n
}

//go:noinline
func keepMemory() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 1<<20))
	}
}

//go:noinline
func waitForLock() {
	var lock sync.Mutex
	var done sync.WaitGroup
	for i := 0; i < 4; i++ {
		done.Add(1)
		go func() {
			defer done.Done()
			for k := 0; k < 5; k++ {
				lock.Lock()
				time.Sleep(2 * time.Millisecond)
				lock.Unlock()
			}
		}()
	}
	done.Wait()
}

//go:noinline
func parkedForever(c chan bool) { <-c }

func main() {
	how, rate := "", time.Second
	if len(os.Args) > 3 {
		how, rate = os.Args[3], 10*time.Second
	}
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	p, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "shop",
		ServerAddress:   os.Args[1],
		HTTPClient:      clientOf(os.Args[2], how),
		Tags:            map[string]string{"version": "1.2"},
		UploadRate:      rate,
		Logger:          errorLog{},
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU, pyroscope.ProfileAllocObjects,
			pyroscope.ProfileAllocSpace,
			pyroscope.ProfileInuseObjects, pyroscope.ProfileInuseSpace,
			pyroscope.ProfileGoroutines, pyroscope.ProfileMutexCount,
			pyroscope.ProfileMutexDuration, pyroscope.ProfileBlockCount,
			pyroscope.ProfileBlockDuration,
		},
	})
	if err != nil {
		panic(err)
	}
	go parkedForever(make(chan bool))
	keepMemory()
	runtime.GC()
	waitForLock()
	pyroscope.TagWrapper(context.Background(), pyroscope.Labels("handler", "checkout"),
		func(context.Context) { busyCheckout(time.Now().Add(2500 * time.Millisecond)) })
	p.Flush(true)
	fmt.Println("pushed")
	for how != "" {
		busyLater(time.Now().Add(100 * time.Millisecond))
		time.Sleep(900 * time.Millisecond)
	}
	bufio.NewReader(os.Stdin).ReadString('\n')
	busyLater(time.Now().Add(time.Second))
	p.Flush(true)
	if err := p.Stop(); err != nil {
		panic(err)
	}
	runtime.KeepAlive(kept)
}
