// SPDX-License-Identifier: Apache-2.0

// cgo: Go that calls C that calls Go. Its protocol is burn.h's.
package main

/*
#include <stdint.h>
extern uint64_t goFromC(uint64_t n);
static __attribute__((noinline)) uint64_t in_c(uint64_t n)
{
	uint64_t x = n | 1;

	for (; n; n--)
		x = x * 6364136223846793005ull + 1;
	return x;
}
static __attribute__((noinline)) uint64_t c_calls_go(uint64_t n)
{
	return goFromC(n) + 1;
}
static uint64_t call_in_c(uint64_t n) { return in_c(n) + 1; }
static uint64_t call_back(uint64_t n) { return c_calls_go(n) + 1; }
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

func clock(id uintptr) uint64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return uint64(t.Nano())
}

//go:noinline
func inGo(n uint64) uint64 {
	x := n | 1
	for ; n > 0; n-- {
		x = x*2862933555777941757 + 1
	}
	return x
}

//export goFromC
func goFromC(n C.uint64_t) C.uint64_t { return C.uint64_t(calledBack(uint64(n))) }

//go:noinline
func calledBack(n uint64) uint64 {
	x := n | 1
	for ; n > 0; n-- {
		x = x*3202034522624059733 + 1
	}
	return x
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	budget := uint64(seconds * 1e9)
	runtime.LockOSThread()
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	first := clock(2)
	var spent [3]uint64
	var sink uint64
	for state := first | 1; clock(2)-first < budget; {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		n, at := 1000000+state/10%4000000, clock(3)
		switch state % 3 {
		case 0:
			sink += uint64(C.call_in_c(C.uint64_t(n)))
		case 1:
			sink += uint64(C.call_back(C.uint64_t(n)))
		default:
			sink += inGo(n)
		}
		spent[state%3] += clock(3) - at
	}
	out, _ := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0666)
	for i, name := range []string{"in_c", "called_back", "in_go"} {
		fmt.Fprintln(out, name, spent[i])
	}
	fmt.Fprintln(out, "total", clock(2)-first)
	fmt.Println("done")
	os.Stdin.Read(make([]byte, 1))
}
