// A whole MultiversX network in one process: real nodes, their virtual machine, their REST interfaces and what they
// tell over WebSocket. Driven by lines of JSON: commands on stdin, events on stdout.
//
//	node CONFIG_DIR WORK_DIR MARSHALLER=URL [MARSHALLER=URL…]
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/multiversx/mx-chain-core-go/core"
	logger "github.com/multiversx/mx-chain-logger-go"

	"github.com/multiversx/mx-chain-go/config"
	"github.com/multiversx/mx-chain-go/node/chainSimulator"
	"github.com/multiversx/mx-chain-go/node/chainSimulator/components/api"
	"github.com/multiversx/mx-chain-go/node/chainSimulator/dtos"
)

const (
	shards         = 3
	roundMs        = 1000
	roundsPerEpoch = 20
	// Blocks made at once, before anybody asks, run ahead of the clock by as many rounds.
	roundsBefore = 90
)

type event map[string]any

type command struct {
	Request int
	Do      string
	Count   int
	Address string
	Balance string
}

func check(err error) {
	if err != nil {
		say(event{"event": "failed", "error": err.Error()})
		os.Exit(1)
	}
}

func say(e event) { _ = json.NewEncoder(os.Stdout).Encode(e) }

// drivers are those of a node's external.toml, one for each of `MARSHALLER=URL`.
func drivers(wanted []string) []config.HostDriversConfig {
	var all []config.HostDriversConfig
	for _, one := range wanted {
		marshaller, url, _ := strings.Cut(one, "=")
		all = append(all, config.HostDriversConfig{
			Enabled: true, Mode: "client", URL: url, MarshallerType: marshaller, WithAcknowledge: true,
			AcknowledgeTimeoutInSec: 60, RetryDurationInSec: 1, BlockingAckOnError: true, Version: 1,
		})
	}
	return all
}

// chain is what the simulator's own type, which has no name for others, is used for.
type chain interface {
	GenerateBlocks(count int) error
	GenerateBlocksUntilEpochIsReached(epoch int32) error
	SetStateMultiple(states []*dtos.AddressState) error
	GetRestAPIInterfaces() map[uint32]string
	Close()
}

func network(configs, work string, hosts []config.HostDriversConfig) (chain, error) {
	// The module cache is read-only, and the simulator copies files with their modes.
	writable := filepath.Join(work, "original")
	if err := os.CopyFS(writable, os.DirFS(configs)); err != nil {
		return nil, err
	}
	return chainSimulator.NewChainSimulator(chainSimulator.ArgsChainSimulator{
		TempDir:               work,
		PathToInitialConfig:   writable,
		NumOfShards:           shards,
		GenesisTimestamp:      time.Now().Unix() - roundsBefore*roundMs/1000,
		RoundDurationInMillis: roundMs,
		RoundsPerEpoch:        core.OptionalUint64{HasValue: true, Value: roundsPerEpoch},
		MinNodesPerShard:      1,
		MetaChainMinNodes:     1,
		ApiInterface:          api.NewFreePortAPIConfigurator("127.0.0.1"),
		AlterConfigsFunction:  func(all *config.Configs) { all.ExternalConfig.HostDriversConfig = hosts },
	})
}

func obey(nodes chain, c command) event {
	done := event{"event": "done", "request": c.Request}
	var err error
	switch c.Do {
	case "blocks":
		err = nodes.GenerateBlocks(c.Count)
	case "epoch":
		err = nodes.GenerateBlocksUntilEpochIsReached(int32(c.Count))
	case "mint":
		err = nodes.SetStateMultiple([]*dtos.AddressState{{Address: c.Address, Balance: c.Balance}})
	default:
		err = fmt.Errorf("unknown: %s", c.Do)
	}
	if err != nil {
		done["error"] = err.Error()
	}
	return done
}

func main() {
	// What nodes log goes to stdout, where the events are.
	check(logger.SetLogLevel("*:NONE"))
	nodes, err := network(os.Args[1], os.Args[2], drivers(os.Args[3:]))
	check(err)
	apis := map[string]string{}
	for shard, place := range nodes.GetRestAPIInterfaces() {
		apis[strconv.FormatUint(uint64(shard), 10)] = "http://" + place
	}
	say(event{"event": "ready", "apis": apis})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		check(json.Unmarshal(lines.Bytes(), &c))
		say(obey(nodes, c))
	}
	go func() { time.Sleep(5 * time.Second); os.Exit(0) }()
	nodes.Close()
}
