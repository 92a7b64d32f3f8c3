// Command node is a whole Kubernetes in one binary: it looks at the name it was
// started under (argv[0]) and becomes that program. One binary, because the
// programs share nearly all of their code: seven separate links would take
// seven times the time and the disk.
//
// It adds nothing to the programs and changes nothing in them, so that what is
// tested here is what runs elsewhere.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps the name a program is started under to what runs it.
func programs() map[string]func() int {
	component := func(build func() *cobra.Command) func() int {
		return func() int { return cli.Run(build()) }
	}
	return map[string]func() int{
		"etcd": func() int {
			etcdmain.Main(os.Args)
			return 0
		},
		"kube-apiserver":          component(apiserver.NewAPIServerCommand),
		"kube-controller-manager": component(controllers.NewControllerManagerCommand),
		"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kube-proxy":              component(proxy.NewProxyCommand),
		// It listens to signals by itself: with the usual signal context it would
		// set up a second listener, and panic.
		"kubelet": component(func() *cobra.Command {
			return kubelet.NewKubeletCommand(context.Background())
		}),
		"kubectl": component(cmd.NewDefaultKubectlCommand),
	}
}

func main() {
	name := filepath.Base(os.Args[0])
	known := programs()
	run, found := known[name]
	if !found {
		names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
		fmt.Fprintf(os.Stderr, "%q is none of the programs in this binary: start it through a symbolic link named %s\n", name, names)
		os.Exit(2)
	}
	os.Exit(run())
}
