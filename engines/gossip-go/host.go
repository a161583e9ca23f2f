package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	"github.com/multiversx/mx-chain-communication-go/p2p"
	"github.com/multiversx/mx-chain-communication-go/p2p/config"
	messenger "github.com/multiversx/mx-chain-communication-go/p2p/libp2p"
	p2pcrypto "github.com/multiversx/mx-chain-communication-go/p2p/libp2p/crypto"
	discovery "github.com/multiversx/mx-chain-communication-go/p2p/libp2p/discovery/factory"
	"github.com/multiversx/mx-chain-communication-go/p2p/libp2p/metrics"
	sharding "github.com/multiversx/mx-chain-communication-go/p2p/libp2p/networksharding"
	"github.com/multiversx/mx-chain-communication-go/p2p/libp2p/resourceLimiter"
	"github.com/multiversx/mx-chain-core-go/core"
	"github.com/multiversx/mx-chain-core-go/marshal"
	"github.com/multiversx/mx-chain-crypto-go/signing"
	"github.com/multiversx/mx-chain-crypto-go/signing/secp256k1"
	"github.com/multiversx/mx-chain-crypto-go/signing/secp256k1/singlesig"
)

const kadSuffix = "/kad/1.0.0"

// newHost makes a host with the options of the network's messenger, but for its port mapping, and with ports of its own:
// nobody may share them.
func newHost(secret []byte, own peerSettings) (host.Host, error) {
	keys := signing.NewKeyGenerator(secp256k1.NewSecp256k1())
	private, err := keys.PrivateKeyFromByteArray(secret)
	if err != nil {
		return nil, err
	}
	identity, err := p2pcrypto.ConvertPrivateKeyToLibp2pPrivateKey(private)
	if err != nil {
		return nil, err
	}
	limits, err := resourceLimiter.CreateResourceLimiterOption(
		config.ResourceLimiterConfig{Type: p2p.DefaultAutoscaleResourceLimiter})
	if err != nil {
		return nil, err
	}
	options := []libp2p.Option{
		libp2p.NoListenAddrs, libp2p.Identity(identity), libp2p.DefaultMuxers, libp2p.DefaultSecurity,
		libp2p.DisableRelay(), limits, libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport()),
	}
	if len(own.Announce) > 0 {
		announced, err := multiaddrs(own.Announce)
		if err != nil {
			return nil, err
		}
		options = append(options, libp2p.AddrsFactory(
			func([]multiaddr.Multiaddr) []multiaddr.Multiaddr { return announced }))
	}
	made, err := libp2p.New(options...)
	if err != nil {
		return nil, err
	}
	if err := listen(made, own.Listen); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return made, nil
}

func listen(h host.Host, addresses []string) error {
	for _, address := range addresses {
		parsed, err := multiaddr.NewMultiaddr(address)
		if err != nil {
			return fmt.Errorf("%s is no /ip4/<address>/tcp/<port> to listen on: %w", address, err)
		}
		if err := h.Network().Listen(parsed); err != nil {
			return fmt.Errorf("cannot listen on %s: %w", address, err)
		}
	}
	return nil
}

func multiaddrs(addresses []string) ([]multiaddr.Multiaddr, error) {
	var all []multiaddr.Multiaddr
	for _, address := range addresses {
		parsed, err := multiaddr.NewMultiaddr(address)
		if err != nil {
			return nil, fmt.Errorf("%s is no multiaddress: %w", address, err)
		}
		all = append(all, parsed)
	}
	return all, nil
}

// serveDirect reads direct messages with the messenger's own code.
func serveDirect(ctx context.Context, h host.Host, secret []byte) (*requests, error) {
	keys := signing.NewKeyGenerator(secp256k1.NewSecp256k1())
	private, err := keys.PrivateKeyFromByteArray(secret)
	if err != nil {
		return nil, err
	}
	signer, err := p2pcrypto.NewP2PSignerWrapper(p2pcrypto.ArgsP2pSignerWrapper{
		PrivateKey: private, Signer: &singlesig.Secp256k1Signer{}, KeyGen: keys,
		P2PKeyConverter: p2pcrypto.NewP2PKeyConverter(),
	})
	if err != nil {
		return nil, err
	}
	sender, err := messenger.NewDirectSender(ctx, h, p2pSigner{signer}, &marshal.GogoProtoMarshalizer{}, quiet{})
	if err != nil {
		return nil, err
	}
	counted := &requests{}
	return counted, sender.RegisterDirectMessageProcessor(counted)
}

type signerVerifier interface {
	Sign(payload []byte) ([]byte, error)
	Verify(payload []byte, pid core.PeerID, signature []byte) error
}

// p2pSigner adds to the messenger's signer what its interfaces ask of every value.
type p2pSigner struct{ signerVerifier }

func (p2pSigner) IsInterfaceNil() bool { return false }

// discover finds peers by Kademlia with the messenger's own discoverers, until the context ends. They stop dialling at
// `dht_peers`, and keep those nearest to us, as the messenger's sharder for peers of unknown shards does.
func discover(ctx context.Context, h host.Host, own peerSettings) error {
	sharder, err := sharding.NewOneListSharder(h.ID(), max(3, own.DHTPeers))
	if err != nil {
		return err
	}
	prefixes := make([]string, 0, len(own.KadProtocols))
	for _, name := range own.KadProtocols {
		prefixes = append(prefixes, strings.TrimSuffix(name, kadSuffix))
	}
	discoverers, err := discovery.NewPeerDiscoverers(discovery.ArgsPeerDiscoverer{
		Context: ctx,
		Host:    messenger.NewConnectableHost(h),
		Sharder: sharder,
		P2pConfig: config.P2PConfig{
			KadDhtPeerDiscovery: config.KadDhtPeerDiscoveryConfig{
				Enabled: true, Type: "optimized", RefreshIntervalInSec: 10, ProtocolIDs: prefixes,
				InitialPeerList: own.Bootstrap, BucketSize: 100, RoutingTableRefreshIntervalInSec: 300,
			},
			Sharding: config.ShardingConfig{Type: p2p.OneListSharder},
		},
		ConnectionsWatcher: metrics.NewDisabledConnectionsWatcher(),
		NetworkType:        "main",
		Logger:             quiet{},
	})
	if err != nil {
		return err
	}
	for _, one := range discoverers {
		go func() {
			if err := one.Bootstrap(); err != nil && ctx.Err() == nil {
				logPeer("warning", "looking for gossip peers failed", fields{"reason": err.Error()})
			}
		}()
	}
	return nil
}
