// Command go-tool is a tool for Ratchet: a NATS service with one endpoint whose metadata says that it is a tool.
//
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/go-tool
package main

import (
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

func main() {
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	service, err := micro.AddService(nc, micro.Config{Name: "fx", Version: "1.0.0", Description: "Exchange rates"})
	if err != nil {
		log.Fatal(err)
	}
	err = service.AddEndpoint("convert", micro.HandlerFunc(convert), micro.WithEndpointSubject("tools.fx.convert"), micro.WithEndpointMetadata(map[string]string{
		"ratchet.tool":        "convert_money",
		"ratchet.description": "Converts euros to dollars at today's sample rate.",
		"ratchet.effect":      "read",
		"ratchet.schema":      `{"type":"object","properties":{"euros":{"type":"number","minimum":0}},"required":["euros"],"additionalProperties":false}`,
	}))
	if err != nil {
		log.Fatal(err)
	}
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	<-interrupt
	_ = nc.Drain() // lets calls in hand end; the program ends in any case
}

func convert(r micro.Request) {
	var a struct{ Euros float64 }
	if err := json.Unmarshal(r.Data(), &a); err != nil {
		_ = r.Error("400", "euros is no number", nil)
		return
	}
	_ = r.RespondJSON(map[string]float64{"dollars": a.Euros * 1.25})
}
