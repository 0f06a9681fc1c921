// SPDX-License-Identifier: Apache-2.0

// shares: Go: a leaf without a frame, recursion, an inlined function, goroutines, work that makes
// garbage. Its protocol is burn.h's. Goroutines that measure themselves are locked to their
// threads.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

const processClock, threadClock = 2, 3

func clock(id uintptr) uint64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return uint64(t.Nano())
}

type dice uint64

func (d *dice) below(n uint64) uint64 {
	*d ^= *d << 13
	*d ^= *d >> 7
	*d ^= *d << 17
	return uint64(*d) % n
}
func (d *dice) steps() uint64 { return 1000000 + d.below(4000000) }

//go:noinline
func leaf(n uint64) uint64 {
	x := n | 1
	for ; n > 0; n-- {
		x = x*6364136223846793005 + 1
	}
	return x
}

//go:noinline
func callsLeaf(n uint64) uint64 { return leaf(n) + 1 }

//go:noinline
func recursive(depth int, n uint64) uint64 {
	if depth > 1 {
		return recursive(depth-1, n) + 1
	}
	x := n | 1
	for ; n > 0; n-- {
		x = x*2862933555777941757 + 1
	}
	return x
}

func inlined(n uint64) uint64 {
	x := n | 1
	for ; n > 0; n-- {
		x = x*3202034522624059733 + 1
	}
	return x
}

//go:noinline
func aroundInlined(n uint64) uint64 { return inlined(n) + uint64(len(os.Args)) }

//go:noinline
func inGoroutine(n uint64) uint64 {
	x := n | 1
	for ; n > 0; n-- {
		x = x*3935559000370003845 + 1
	}
	return x
}

var sink uint64
var kept [64][]byte

//go:noinline
func makesGarbage(n uint64) uint64 {
	for i := uint64(0); i < n/400; i++ {
		kept[i%64] = make([]byte, 512+i%1024)
	}
	return n
}

func timed(total *uint64, f func(uint64) uint64, n uint64) {
	at := clock(threadClock)
	sink += f(n)
	*total += clock(threadClock) - at
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	budget := uint64(seconds * 1e9)
	runtime.LockOSThread()
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	first := clock(processClock)
	var wait sync.WaitGroup
	spent := make([]uint64, 5)
	wait.Add(1)
	go func() {
		defer wait.Done()
		runtime.LockOSThread()
		at := clock(threadClock)
		d := dice(at | 1)
		for clock(threadClock)-at < budget/5 {
			timed(&spent[3], inGoroutine, d.steps())
		}
	}()
	d := dice(first | 1)
	for clock(processClock)-first < budget {
		n := d.steps()
		switch d.below(10) {
		case 0, 1, 2, 3:
			timed(&spent[0], callsLeaf, n)
		case 4, 5:
			timed(&spent[1], func(n uint64) uint64 { return recursive(30, n) }, n)
		case 6, 7:
			timed(&spent[2], aroundInlined, n)
		default:
			timed(&spent[4], makesGarbage, n)
		}
	}
	wait.Wait()
	out, _ := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0666)
	for i, name := range []string{"leaf", "recursive", "inlined", "goroutine", "garbage"} {
		fmt.Fprintln(out, name, spent[i])
	}
	fmt.Fprintln(out, "total", clock(processClock)-first)
	fmt.Println("done")
	os.Stdin.Read(make([]byte, 1))
}
