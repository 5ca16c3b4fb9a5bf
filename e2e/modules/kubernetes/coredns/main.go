// CoreDNS with the plugins that the cluster's Corefile names, and without the clouds and tracers of the usual one.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// In the order in which they are asked.
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
