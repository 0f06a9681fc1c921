// SPDX-License-Identifier: Apache-2.0

// Command provider is an OIDC provider for tests. It asks nobody for a password: everybody who
// signs in is the user whose name is in a file.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/oauth2-proxy/mockoidc"
)

func main() {
	address := flag.String("address", "", "ADDRESS:PORT")
	cert := flag.String("cert", "", "certificate (PEM)")
	key := flag.String("key", "", "its key (PEM)")
	client := flag.String("client", "", "id of the only client")
	secret := flag.String("secret", "", "its secret")
	userFile := flag.String("user", "", "file with the name of the user")
	flag.Parse()

	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	m, err := mockoidc.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	m.ClientID, m.ClientSecret = *client, *secret
	err = m.AddMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == mockoidc.AuthorizationEndpoint {
				name, err := os.ReadFile(*userFile)
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				sub := strings.TrimSpace(string(name))
				user := mockoidc.MockUser{Subject: sub, EmailVerified: true}
				user.Email = sub + "@example.com"
				m.QueueUser(&user)
			}
			next.ServeHTTP(w, r)
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Start(tls.NewListener(listener, config), config); err != nil {
		log.Fatal(err)
	}
	log.Print(m.Issuer())
	select {}
}
