package main

import "time"

// The settings as src/millrace/gossip/settings.py has them; durations are seconds.

const (
	maxFrameBytes = 2 * 1024 * 1024
	maxDataBytes  = maxFrameBytes - 64*1024
)

type peerSettings struct {
	KeyFile        string   `msgpack:"key_file"`
	KeySeed        string   `msgpack:"key_seed"`
	Listen         []string `msgpack:"listen"`
	Announce       []string `msgpack:"announce"`
	Bootstrap      []string `msgpack:"bootstrap"`
	Subscribe      []string `msgpack:"subscribe"`
	DHT            bool     `msgpack:"dht"`
	DHTPeers       int      `msgpack:"dht_peers"`
	MaxConnections int      `msgpack:"max_connections"`
	MaxUnknown     int      `msgpack:"max_unknown"`
	KadProtocols   []string `msgpack:"kad_protocols"`
}

type settings struct {
	Peers             []peerSettings `msgpack:"peers"`
	Interconnect      bool           `msgpack:"interconnect"`
	PublishRate       float64        `msgpack:"publish_rate"`
	PublishBurst      int            `msgpack:"publish_burst"`
	PublishPatience   float64        `msgpack:"publish_patience"`
	MaxPending        int            `msgpack:"max_pending"`
	MaxInbound        int            `msgpack:"max_inbound"`
	MaxInboundBytes   int            `msgpack:"max_inbound_bytes"`
	MaxPeerQueue      int            `msgpack:"max_peer_queue"`
	MaxPeerQueueBytes int64          `msgpack:"max_peer_queue_bytes"`
	PingInterval      float64        `msgpack:"ping_interval"`
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }
