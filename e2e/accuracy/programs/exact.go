// SPDX-License-Identifier: Apache-2.0

// exact: in Go: threads' waits in system calls, allocations of whole size classes. Its protocol is
// exact.h's; before "ready" it tells the port of its own heap profile, which has each allocation in
// it.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const wait = 15 * time.Millisecond

var (
	pipe, socket [2]int
	disk, lock   int
	escaped      []byte
	leaked       [][]byte
	ask          = make(chan byte)
	held         = make(chan bool)
	told         *os.File
	rounds       int
)

// ---- waits ----

//go:noinline
func naps() {
	t := syscall.NsecToTimespec(int64(wait))
	_ = syscall.Nanosleep(&t, nil)
}

//go:noinline
func waits_for_lock() {
	_ = syscall.Flock(lock, syscall.LOCK_EX)
	_ = syscall.Flock(lock, syscall.LOCK_UN)
}

//go:noinline
func reads_pipe() { reads(pipe[0]) }

//go:noinline
func reads_socket() { reads(socket[0]) }

func reads(fd int) {
	var b [1]byte
	if n, err := syscall.Read(fd, b[:]); n != 1 {
		panic(err)
	}
}

//go:noinline
func polls() {
	t := syscall.NsecToTimeval(int64(wait))
	_, _ = syscall.Select(0, nil, nil, nil, &t)
}

//go:noinline
func syncs() {
	_, _ = syscall.Pwrite(disk, []byte("x"), 0)
	_ = syscall.Fdatasync(disk)
}

//go:noinline
func waits_for_signal() {
	set, t := uint64(1<<9), syscall.NsecToTimespec(int64(wait))
	_, _, _ = syscall.Syscall6(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0,
		uintptr(unsafe.Pointer(&t)), 8, 0, 0)
}

// ---- memory: the profile counts what a size class has ----

//go:noinline
func makes_small() { escaped = make([]byte, 1024) }

//go:noinline
func makes_large() { escaped = make([]byte, 10*8192) }

//go:noinline
func leaks() { leaked = append(leaked, leaks_bytes()) }

//go:noinline
func leaks_bytes() []byte { return make([]byte, 8192) }

// ---- what is known ----

func cpu() time.Duration {
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

func waits(name, cause string, f func(), asks byte) {
	var sum time.Duration
	for i := 0; i < rounds; i++ {
		if asks != 0 {
			ask <- asks
			if asks == 'l' {
				<-held
			}
		}
		before, had := time.Now(), cpu()
		f()
		sum += time.Since(before) - (cpu() - had)
	}
	fmt.Fprintf(told, "off-cpu %s %d %s\n", name, sum.Microseconds(), cause)
}

func allocates(name string, f func(), bytes, kept int) {
	for i := 0; i < rounds; i++ {
		f()
	}
	fmt.Fprintf(told, "mem-alloc %s %d\n", name, bytes*rounds)
	fmt.Fprintf(told, "mem-inuse %s %d\n", name, kept*rounds)
}

func helps(path string) {
	runtime.LockOSThread()
	mine, err := syscall.Open(path, syscall.O_RDWR, 0)
	for what := range ask {
		if what == 'l' {
			if err != nil || syscall.Flock(mine, syscall.LOCK_EX) != nil {
				panic(err)
			}
			held <- true
		}
		time.Sleep(wait)
		switch what {
		case 'l':
			_ = syscall.Flock(mine, syscall.LOCK_UN)
		case 'p':
			_, _ = syscall.Write(pipe[1], []byte("x"))
		case 's':
			_, _ = syscall.Write(socket[1], []byte("x"))
		}
	}
}

func main() {
	runtime.MemProfileRate = 1
	runtime.LockOSThread()
	var err error
	if told, err = os.Create(os.Args[1]); err != nil {
		panic(err)
	}
	rounds, _ = strconv.Atoi(os.Args[2])
	path := os.Args[1] + ".disk"
	if disk, err = syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR, 0600); err != nil {
		panic(err)
	}
	if lock, err = syscall.Open(path, syscall.O_RDWR, 0); err != nil {
		panic(err)
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil || syscall.Pipe(pipe[:]) != nil {
		panic("pipe")
	}
	socket = pair
	go helps(path)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = http.Serve(listener, nil) }()
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	waits("naps", "sleep", naps, 0)
	waits("waits_for_lock", "lock", waits_for_lock, 'l')
	waits("reads_pipe", "pipe", reads_pipe, 'p')
	waits("reads_socket", "socket", reads_socket, 's')
	waits("polls", "poll", polls, 0)
	waits("syncs", "disk", syncs, 0)
	waits("waits_for_signal", "other", waits_for_signal, 0)
	allocates("makes_small", makes_small, 1024, 0)
	allocates("makes_large", makes_large, 10*8192, 0)
	allocates("leaks_bytes", leaks, 8192, 8192)
	escaped = nil
	told.Close()
	for i := 0; i < 3; i++ {
		runtime.GC() // the profile tells what finished collections have seen
	}
	fmt.Println("done")
	_, _ = io.ReadAll(in)
	runtime.KeepAlive(leaked)
}
