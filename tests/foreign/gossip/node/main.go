// A MultiversX node's own p2p messenger, driven by lines of JSON: commands on stdin, events on stdout.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/multiversx/mx-chain-communication-go/p2p"
	"github.com/multiversx/mx-chain-communication-go/p2p/config"
	"github.com/multiversx/mx-chain-communication-go/p2p/libp2p"
	"github.com/multiversx/mx-chain-communication-go/p2p/peersHolder"
	"github.com/multiversx/mx-chain-core-go/core"
	"github.com/multiversx/mx-chain-core-go/marshal"
	"github.com/multiversx/mx-chain-crypto-go/signing"
	"github.com/multiversx/mx-chain-crypto-go/signing/secp256k1"
	"github.com/multiversx/mx-chain-crypto-go/signing/secp256k1/singlesig"
	logger "github.com/multiversx/mx-chain-logger-go"
)

type event map[string]any

var output sync.Mutex

func say(e event) {
	output.Lock()
	defer output.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(e)
}

// unrated stands for the rating of peers, which plays no part here.
type unrated struct{}

func (unrated) AddPeers([]core.PeerID)     {}
func (unrated) IncreaseRating(core.PeerID) {}
func (unrated) DecreaseRating(core.PeerID) {}
func (unrated) GetTopRatedPeersFromList(peers []core.PeerID, _ int) []core.PeerID {
	return peers
}
func (unrated) IsInterfaceNil() bool { return false }

// processor reports what has passed the node's checks of the wrapper; of a flood it only keeps what has come.
type processor struct{}

var (
	floodMutex sync.Mutex
	flooded    = map[byte][]byte{} // a bit for each message, by who published it
)

const (
	floodMark = 0xf1
	floodSize = 300
)

// keep notes a message of a flood; false when it is another.
func keep(payload []byte) bool {
	if len(payload) != floodSize || payload[0] != floodMark {
		return false
	}
	number := binary.BigEndian.Uint32(payload[2:])
	floodMutex.Lock()
	defer floodMutex.Unlock()
	bits := flooded[payload[1]]
	for int(number/8) >= len(bits) {
		bits = append(bits, 0)
	}
	bits[number/8] |= 1 << (number % 8)
	flooded[payload[1]] = bits
	return true
}

// flood publishes numbered messages at a steady rate.
func flood(node p2p.Messenger, topic string, publisher byte, count, rate int) {
	began := time.Now()
	for number := range count {
		payload := make([]byte, floodSize)
		payload[0], payload[1] = floodMark, publisher
		binary.BigEndian.PutUint32(payload[2:], uint32(number))
		node.Broadcast(topic, payload)
		time.Sleep(time.Until(began.Add(time.Duration(number+1) * time.Second / time.Duration(rate))))
	}
}

func (processor) ProcessReceivedMessage(m p2p.MessageP2P, _ core.PeerID, _ p2p.MessageHandler) ([]byte, error) {
	if keep(m.Data()) {
		return nil, nil
	}
	say(event{
		"event": "message", "topic": m.Topic(), "payload": hex.EncodeToString(m.Data()),
		"from": m.Peer().Pretty(), "timestamp": m.Timestamp(),
	})
	return nil, nil
}
func (processor) IsInterfaceNil() bool { return false }

func check(err error) {
	if err != nil {
		say(event{"event": "failed", "error": err.Error()})
		os.Exit(1)
	}
}

// sharding is a node's own choice of whom to stay connected to, with the network's numbers, or none.
func sharding() config.ShardingConfig {
	if os.Getenv("NODE_QUOTAS") == "" {
		return config.ShardingConfig{Type: p2p.NilListSharder}
	}
	return config.ShardingConfig{
		TargetPeerCount: 41, MaxIntraShardValidators: 7, MaxCrossShardValidators: 15,
		MaxIntraShardObservers: 7, MaxCrossShardObservers: 3, MaxSeeders: 2, Type: p2p.ListsSharder,
	}
}

func messenger(seeds []string) p2p.Messenger {
	keys := signing.NewKeyGenerator(secp256k1.NewSecp256k1())
	private, _ := keys.GeneratePair()
	preferred, err := peersHolder.NewPeersHolder(nil)
	check(err)
	node, err := libp2p.NewNetworkMessenger(libp2p.ArgsNetworkMessenger{
		Marshaller: &marshal.GogoProtoMarshalizer{},
		P2pConfig: config.P2PConfig{
			Node: config.NodeConfig{
				Port: "0",
				Transports: config.TransportConfig{
					TCP: config.TCPProtocolConfig{ListenAddress: p2p.LocalHostListenAddrWithIp4AndTcp},
				},
				ResourceLimiter: config.ResourceLimiterConfig{Type: p2p.DefaultAutoscaleResourceLimiter},
			},
			KadDhtPeerDiscovery: config.KadDhtPeerDiscoveryConfig{
				Enabled:                          len(seeds) > 0,
				Type:                             "optimized",
				RefreshIntervalInSec:             1,
				ProtocolIDs:                      []string{"/erd/kad/1.0.0", "mvx-main"},
				InitialPeerList:                  seeds,
				BucketSize:                       100,
				RoutingTableRefreshIntervalInSec: 300,
			},
			Sharding: sharding(),
		},
		SyncTimer:             &libp2p.LocalSyncTimer{},
		PreferredPeersHolder:  preferred,
		PeersRatingHandler:    unrated{},
		ConnectionWatcherType: p2p.ConnectionWatcherTypeDisabled,
		P2pPrivateKey:         private,
		P2pSingleSigner:       &singlesig.Secp256k1Signer{},
		P2pKeyGenerator:       keys,
		NetworkType:           p2p.NetworkType("main"),
		Logger:                logger.GetOrCreate("test"),
	})
	check(err)
	return node
}

type command struct {
	Request int
	Do      string
	Address string
	Data    string
	Number  int
	Count   int
	Rate    int
}

func obey(node p2p.Messenger, topic string, c command) event {
	done := event{"event": "done", "request": c.Request}
	switch c.Do {
	case "dial":
		if err := node.ConnectToPeer(c.Address); err != nil {
			done["error"] = err.Error()
		}
	case "peers":
		connected := []string{}
		for _, peer := range node.ConnectedPeers() {
			connected = append(connected, peer.Pretty())
		}
		done["connected"] = connected
	case "flood":
		flood(node, topic, byte(c.Number), c.Count, c.Rate)
	case "flooded":
		floodMutex.Lock()
		defer floodMutex.Unlock()
		seen := map[string]string{}
		for publisher, bits := range flooded {
			seen[strconv.Itoa(int(publisher))] = hex.EncodeToString(bits)
		}
		done["seen"] = seen
	case "crowd":
		if err := theCrowd.join(node.Addresses()[0], c.Count); err != nil {
			done["error"] = err.Error()
		}
	case "crowded":
		done["connected"], done["joined"] = theCrowd.connected(node.ID()), theCrowd.joined.Load()
	case "request":
		data, err := hex.DecodeString(c.Data)
		check(err)
		to, err := core.NewPeerID(c.Address)
		check(err)
		if err := node.SendToConnectedPeer(topic+core.TopicRequestSuffix, data, to); err != nil {
			done["error"] = err.Error()
		}
	case "publish":
		data, err := hex.DecodeString(c.Data)
		check(err)
		node.Broadcast(topic, data)
	}
	return done
}

func main() {
	topic := os.Args[1]
	check(logger.SetLogLevel("*:NONE"))
	node := messenger(os.Args[2:])
	check(node.CreateTopic(topic, true))
	check(node.RegisterMessageProcessor(topic, "test", processor{}))
	check(node.CreateTopic(connectionTopic, true))
	places := &shards{known: map[core.PeerID]uint32{}}
	check(node.RegisterMessageProcessor(connectionTopic, "shards", places))
	check(node.SetPeerShardResolver(places))
	check(node.Bootstrap())
	say(event{"event": "ready", "id": node.ID().Pretty(), "address": node.Addresses()[0]})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 8*1024*1024)
	for lines.Scan() {
		var c command
		check(json.Unmarshal(lines.Bytes(), &c))
		say(obey(node, topic, c))
	}
	go func() { time.Sleep(time.Second); os.Exit(0) }()
	_ = node.Close()
}
