package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiversx/mx-chain-communication-go/p2p"
	"github.com/multiversx/mx-chain-core-go/core"
	"google.golang.org/protobuf/encoding/protowire"
)

const connectionTopic = "connection"

// shards stands for a node's table of who is an observer of which shard: whoever says so on the topic of connections.
type shards struct {
	mutex sync.Mutex
	known map[core.PeerID]uint32
}

func (s *shards) ProcessReceivedMessage(m p2p.MessageP2P, _ core.PeerID, _ p2p.MessageHandler) ([]byte, error) {
	number, kind, size := protowire.ConsumeTag(m.Data())
	if size < 0 || number != 1 || kind != protowire.BytesType {
		return nil, fmt.Errorf("not a PeerShard: %x", m.Data())
	}
	text, read := protowire.ConsumeBytes(m.Data()[size:])
	if read < 0 {
		return nil, fmt.Errorf("not a PeerShard: %x", m.Data())
	}
	shard, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.known[m.Peer()] = uint32(shard)
	return nil, nil
}

func (s *shards) GetPeerInfo(id core.PeerID) core.P2PPeerInfo {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if shard, ok := s.known[id]; ok {
		return core.P2PPeerInfo{PeerType: core.ObserverPeer, ShardID: shard}
	}
	return core.P2PPeerInfo{PeerType: core.UnknownPeer}
}

func (s *shards) IsInterfaceNil() bool { return s == nil }

// crowd is peers that say nothing of themselves, and come again whenever the node closes their connection.
type crowd struct {
	mutex  sync.Mutex
	hosts  []host.Host
	joined atomic.Int64 // connections made, by all of them
}

var theCrowd crowd

const crowdPause = 500 * time.Millisecond

func (c *crowd) join(address string, count int) error {
	info, err := peer.AddrInfoFromString(address)
	if err != nil {
		return err
	}
	for range count {
		one, err := libp2p.New(libp2p.NoListenAddrs, libp2p.RandomIdentity, libp2p.DisableRelay())
		if err != nil {
			return err
		}
		c.mutex.Lock()
		c.hosts = append(c.hosts, one)
		c.mutex.Unlock()
		go c.stay(one, *info)
	}
	return nil
}

func (c *crowd) stay(one host.Host, node peer.AddrInfo) {
	for {
		if one.Network().Connectedness(node.ID) != network.Connected {
			if one.Connect(context.Background(), node) == nil {
				c.joined.Add(1)
			}
		}
		time.Sleep(crowdPause)
	}
}

func (c *crowd) connected(id core.PeerID) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	count := 0
	for _, one := range c.hosts {
		if one.Network().Connectedness(peer.ID(id)) == network.Connected {
			count++
		}
	}
	return count
}
