// SPDX-License-Identifier: Apache-2.0

// The demo's web service and its visitors in one process: three routes of different cost, a third
// of a CPU in all. As most services do it has net/http/pprof, and so Go's heap profile; sessions
// that nobody ends are its leak: some 4 MB a minute. It forgets all of them after some eight
// minutes, before the container's memory limit of 128 MiB ends it.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	_ "net/http/pprof"
	"sort"
	"strings"
	"sync"
	"time"
)

type order struct {
	Customer string
	Items    []string
	Total    float64
}

func randomOrder() order {
	o := order{Customer: strings.Repeat("c", 5+rand.Intn(20))}
	for i := 0; i < 40; i++ {
		item := strings.Repeat(string(rune('a'+rand.Intn(26))), 1+rand.Intn(12))
		o.Items = append(o.Items, item)
	}
	return o
}

type session struct {
	o    order
	page [2048]byte
}

const maxSessions = 9000 // 4 KB each; the collector begins when there is twice as much

var sessions struct {
	sync.Mutex
	all     []*session
	visited int
}

// Every second visitor logs in.
func openSession(o order) {
	sessions.Lock()
	defer sessions.Unlock()
	if sessions.visited++; sessions.visited%2 == 0 {
		return
	}
	if len(sessions.all) == maxSessions {
		sessions.all = nil
	}
	sessions.all = append(sessions.all, &session{o: o})
}

func search(w http.ResponseWriter, _ *http.Request) {
	var found []string
	for i := 0; i < 20; i++ {
		found = append(found, randomOrder().Items...)
	}
	sort.Strings(found)
	_ = json.NewEncoder(w).Encode(found)
}

func checkout(w http.ResponseWriter, _ *http.Request) {
	o := randomOrder()
	openSession(o)
	text, _ := json.Marshal(o)
	sum := sha256.Sum256(text)
	for i := 0; i < 3000; i++ {
		sum = sha256.Sum256(sum[:])
	}
	_, _ = w.Write(sum[:])
}

func export(w http.ResponseWriter, _ *http.Request) {
	var all bytes.Buffer
	for i := 0; i < 50; i++ {
		_ = json.NewEncoder(&all).Encode(randomOrder())
	}
	z := gzip.NewWriter(w)
	_, _ = z.Write(all.Bytes())
	_ = z.Close()
}

func visit(address string) {
	routes := []string{"/search", "/search", "/checkout", "/export"}
	for {
		if r, err := http.Get("http://" + address + routes[rand.Intn(len(routes))]); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
		}
		time.Sleep(time.Duration(2+rand.Intn(4)) * time.Millisecond)
	}
}

func main() {
	http.HandleFunc("/search", search)
	http.HandleFunc("/checkout", checkout)
	http.HandleFunc("/export", export)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go visit(l.Addr().String())
	log.Fatal(http.Serve(l, nil))
}
