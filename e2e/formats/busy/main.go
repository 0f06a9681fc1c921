// SPDX-License-Identifier: Apache-2.0

// busy adds numbers, for ever: a program to record, and to build again with the recording.
package main

type adder interface{ add(n int) int }

type odd struct{ sum int }

//go:noinline
func (o *odd) add(n int) int {
	for i := range n {
		o.sum += i * i % 3
	}
	return o.sum
}

//go:noinline
func sum(a adder) int { return a.add(100000) }

func main() {
	for a := (&odd{}); ; {
		sum(a)
	}
}
