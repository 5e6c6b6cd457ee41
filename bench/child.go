package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"ratchet/internal/bus"
	"ratchet/internal/garbage"
	"ratchet/internal/llm"
	"ratchet/internal/node"
)

// childCommand is the first argument of a child; the second is its role.
const childCommand = "child"

// child is what a child process does. It returns when it is asked to end or this process's parent is gone.
func child(ctx context.Context, args []string, input io.Reader, output, log io.Writer) error {
	if len(args) == 0 {
		return errors.New("server or worker?")
	}
	ctx, end := context.WithCancel(ctx)
	go func() {
		obey(input, output)
		end()
	}()
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(log)
	profile := f.String("cpuprofile", "", "file for a CPU profile of the whole life")
	sample := f.Int("memsample", runtime.MemProfileRate, "bytes allocated for one sample in profiles of the heap")
	var work func() error
	switch args[0] {
	case "server":
		work = serverChild(ctx, f)
	case "worker":
		work = workerChild(ctx, f, slog.New(slog.NewTextHandler(log, nil)))
	default:
		return fmt.Errorf("%q is neither server nor worker", args[0])
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	runtime.MemProfileRate = *sample
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return work()
}

// serverChild is nats-server with JetStream, alone or of a cluster.
func serverChild(ctx context.Context, f *flag.FlagSet) func() error {
	o := &server.Options{Host: "127.0.0.1", JetStream: true, NoSigs: true}
	f.StringVar(&o.ServerName, "name", "", "name of the server")
	f.StringVar(&o.StoreDir, "dir", "", "store")
	f.IntVar(&o.Port, "port", 0, "port on 127.0.0.1")
	f.IntVar(&o.Cluster.Port, "cluster-port", 0, "port for the other servers; 0: alone")
	routes := f.String("routes", "", "all servers of the cluster")
	sync := f.String("sync", "always", "always or an interval")
	return func() error {
		if *sync == "always" {
			o.SyncAlways = true
		} else {
			every, err := time.ParseDuration(*sync)
			if err != nil {
				return fmt.Errorf("sync %q is neither always nor an interval", *sync)
			}
			o.SyncInterval = every
		}
		if o.Cluster.Port != 0 {
			o.Cluster.Name, o.Cluster.Host, o.Routes = "bench", o.Host, server.RoutesFromStr(*routes)
		}
		s, err := server.NewServer(o)
		if err != nil {
			return err
		}
		s.Start()
		tidyWhenAsked(ctx)
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	}
}

// tidySignal asks a server to give memory back that it does not use.
const tidySignal = syscall.SIGUSR1

// tidyWhenAsked gives memory back whenever it is asked to, until ctx ends.
func tidyWhenAsked(ctx context.Context) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, tidySignal)
	defer signal.Stop(asked)
	for {
		select {
		case <-asked:
			debug.FreeOSMemory()
		case <-ctx.Done():
			return
		}
	}
}

// workerChild is the worker program with its built-in tools and no console.
func workerChild(ctx context.Context, f *flag.FlagSet, log *slog.Logger) func() error {
	o := node.Options{Lease: 10 * time.Second, Grace: time.Second, Memory: node.MemoryOptions{Off: true}, Log: log}
	f.StringVar(&o.Name, "name", "", "name of the worker")
	f.StringVar(&o.Connect.URL, "nats", "", "where NATS is")
	f.StringVar(&o.Model.BaseURL, "model", "", "where the model is")
	f.IntVar(&o.Concurrency, "slots", 0, "runs driven at once")
	f.IntVar(&o.Replicas, "replicas", 0, "of streams and buckets")
	return func() error {
		o.Model = llm.Config{BaseURL: o.Model.BaseURL, Model: "scripted"}
		o.Connect = bus.ConnectOptions{URL: cmp.Or(o.Connect.URL, "nats://127.0.0.1:4222")}
		if os.Getenv("GOGC") == "" {
			defer garbage.Bound()() // as the worker program does
		}
		n, err := node.Start(ctx, o)
		if err != nil {
			return err
		}
		defer n.Close()
		log.Info(workerReady)
		return n.Run(ctx)
	}
}

// workerReady is logged by a worker that is about to take tasks.
const workerReady = "taking tasks"
