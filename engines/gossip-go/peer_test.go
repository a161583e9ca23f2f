package main

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
)

const testTopic = "transactions_0_1"

// newTestNode is a peer of ours on a free port, in the topic.
func newTestNode(ctx context.Context, t *testing.T) *node {
	t.Helper()
	own := peerSettings{
		KeySeed: "ours", Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Subscribe: []string{testTopic}, MaxConnections: 41,
		MaxUnknown: 7,
	}
	shared := settings{
		MaxPending: 8, MaxInboundBytes: 1 << 20, MaxPeerQueue: 64, MaxPeerQueueBytes: 1 << 20, PingInterval: 20,
	}
	made, err := newNode(ctx, 0, own, shared, newOutlet(8, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.host.Close() })
	return made
}

// neighbour is a peer with gossipsub's own settings and some others, subscribed to the topic and connected to one other
// peer; and the ids that it is told not to send.
func neighbour(ctx context.Context, t *testing.T, to host.Host, options ...pubsub.Option) (
	*pubsub.Topic, host.Host, chan string,
) {
	t.Helper()
	h, err := libp2p.New(libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	unwanted := make(chan string, 8)
	listen := pubsub.WithAppSpecificRpcInspector(func(_ peer.ID, rpc *pubsub.RPC) error {
		for _, one := range rpc.GetControl().GetIdontwant() {
			for _, id := range one.GetMessageIDs() {
				unwanted <- id
			}
		}
		return nil
	})
	router, err := pubsub.NewGossipSub(ctx, h, append(options, listen)...)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := router.Join(testTopic)
	if err != nil {
		t.Fatal(err)
	}
	subscription, err := topic.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for _, err := subscription.Next(ctx); err == nil; _, err = subscription.Next(ctx) {
		}
	}()
	if err := h.Connect(ctx, peer.AddrInfo{ID: to.ID(), Addrs: to.Addrs()}); err != nil {
		t.Fatal(err)
	}
	return topic, h, unwanted
}

func inMesh(t *testing.T, ours *node, members int) {
	t.Helper()
	wait(20*time.Second, func() bool { return ours.tracer.meshSize(testTopic) == members })
	if size := ours.tracer.meshSize(testTopic); size != members {
		t.Fatalf("%d in the mesh, not %d", size, members)
	}
}

// The other mesh peers are told not to send what one of them has sent, however small it is.
func TestSmallMessagesAreUnwantedToo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ours := newTestNode(ctx, t)
	topic, sender, _ := neighbour(ctx, t, ours.host)
	_, _, unwanted := neighbour(ctx, t, ours.host)
	inMesh(t, ours, 2)
	if err := topic.Publish(ctx, []byte("x"), pubsub.WithReadiness(pubsub.MinTopicSize(1))); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-unwanted:
		if len(id) < 8 || id[:len(id)-8] != string(sender.ID()) || binary.BigEndian.Uint64([]byte(id[len(id)-8:])) == 0 {
			t.Errorf("told of %x, which is no message of %s", id, sender.ID())
		}
	case <-ctx.Done():
		t.Fatal("nothing was told")
	}
}

// Who sends a message whose signature is missing or wrong is let go: the others were told not to send that message.
func TestWhoSendsUnsignedMessagesIsLetGo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ours := newTestNode(ctx, t)
	topic, forger, _ := neighbour(ctx, t, ours.host, pubsub.WithMessageSignaturePolicy(pubsub.LaxNoSign))
	_, honest, _ := neighbour(ctx, t, ours.host)
	inMesh(t, ours, 2)
	if err := topic.Publish(ctx, []byte("x"), pubsub.WithReadiness(pubsub.MinTopicSize(1))); err != nil {
		t.Fatal(err)
	}
	wait(20*time.Second, func() bool { return !ours.isConnected(forger.ID()) })
	if ours.isConnected(forger.ID()) || !ours.isConnected(honest.ID()) || ours.stats().Invalid != 1 {
		t.Errorf("forger kept: %t, honest kept: %t, invalid: %d",
			ours.isConnected(forger.ID()), ours.isConnected(honest.ID()), ours.stats().Invalid)
	}
}
