// A small program on client-go, as operators are written in Go: an informer, a lister, optimistic updates, server-side
// apply, and leader election. It fails loudly if the API behind $KUBECONFIG does not do what client-go expects.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check(err, "kubeconfig")
	// Both ways in which client-go speaks: JSON, and protobuf for built-in types.
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config.ContentType = media
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		run(kubernetes.NewForConfigOrDie(config))
	}
	fmt.Println("ok")
}

func run(client *kubernetes.Clientset) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	maps := client.CoreV1().ConfigMaps("default")

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps()
	added := make(chan string, 100)
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { added <- object.(*corev1.ConfigMap).Name },
	})
	check(err, "handler")
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
	check(err, "create")
	select {
	case name := <-added:
		if name != "one" {
			check(fmt.Errorf("got %s", name), "informer")
		}
	case <-ctx.Done():
		check(ctx.Err(), "informer")
	}
	for range 5 {
		check(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			one, err := maps.Get(ctx, "one", metav1.GetOptions{})
			if err != nil {
				return err
			}
			one.Data["n"] += "1"
			_, err = maps.Update(ctx, one, metav1.UpdateOptions{})
			return err
		}), "update")
	}
	one, err := maps.Get(ctx, "one", metav1.GetOptions{})
	check(err, "get")
	if one.Data["n"] != "011111" {
		check(fmt.Errorf("got %s", one.Data["n"]), "updates")
	}
	one.ResourceVersion = "1"
	if _, err = maps.Update(ctx, one, metav1.UpdateOptions{}); !errors.IsConflict(err) {
		check(fmt.Errorf("got %v", err), "conflict")
	}
	applied := applycorev1.ConfigMap("two", "default").WithData(map[string]string{"a": "b"})
	_, err = maps.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "program"})
	check(err, "apply")
	for {
		listed, err := informer.Lister().List(labels.Everything())
		check(err, "lister")
		if len(listed) == 2 {
			break
		}
		select {
		case <-added:
		case <-ctx.Done():
			check(ctx.Err(), "lister")
		}
	}
	led := make(chan struct{})
	election, stop := context.WithCancel(ctx)
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: "default"},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "program"},
	}
	go func() {
		<-led
		stop()
	}()
	leaderelection.RunOrDie(election, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 5 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) },
			OnStoppedLeading: func() {},
		},
	})
	check(maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), "deletecollection")
	if _, err = maps.Get(ctx, "one", metav1.GetOptions{}); !errors.IsNotFound(err) {
		check(fmt.Errorf("got %v", err), "after deletecollection")
	}
}
