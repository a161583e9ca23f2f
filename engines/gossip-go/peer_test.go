package main

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
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

// neighbour is a peer with gossipsub's own settings, subscribed to the topic and connected to one other peer; and the ids
// that it is told not to send.
func neighbour(ctx context.Context, t *testing.T, to host.Host) (*pubsub.Topic, host.Host, chan string) {
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
	router, err := pubsub.NewGossipSub(ctx, h, listen)
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

// Who sends a message with a wrong signature is let go, and not listened to for a while: the others were told not to send
// that message.
func TestForgersAreLetGo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ours := newTestNode(ctx, t)
	_, honest, _ := neighbour(ctx, t, ours.host)
	inMesh(t, ours, 1)
	forger, err := libp2p.New(libp2p.NoListenAddrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = forger.Close() })
	if err := forger.Connect(ctx, peer.AddrInfo{ID: ours.host.ID(), Addrs: ours.host.Addrs()}); err != nil {
		t.Fatal(err)
	}
	stream, err := forger.NewStream(ctx, ours.host.ID(), pubsub.GossipSubID_v12)
	if err != nil {
		t.Fatal(err)
	}
	topic := testTopic
	rpc := pb.RPC{Publish: []*pb.Message{{
		From: []byte(honest.ID()), Seqno: make([]byte, 8), Topic: &topic, Data: []byte("x"), Signature: make([]byte, 64),
	}}}
	body, err := rpc.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write(append(binary.AppendUvarint(nil, uint64(len(body))), body...)); err != nil {
		t.Fatal(err)
	}
	wait(20*time.Second, func() bool { return ours.forgers.Contains(forger.ID()) && !ours.isConnected(forger.ID()) })
	stats := ours.stats()
	if !ours.forgers.Contains(forger.ID()) || ours.isConnected(forger.ID()) || !ours.isConnected(honest.ID()) {
		t.Errorf("%d connected", stats.ConnectedPeers)
	}
	if stats.Invalid != 1 || stats.Delivered != 0 {
		t.Errorf("invalid %d, delivered %d", stats.Invalid, stats.Delivered)
	}
}

// The first message waits for a mesh as large as the router makes it by itself: it takes in nobody while that has five.
func TestAMeshThatIsLargeEnoughIsNotWaitedFor(t *testing.T) {
	ours := &node{tracer: newTracer("ours", []string{testTopic}, nil, nil, nil, nil), settled: map[string]int{testTopic: 6}}
	for number := range 7 {
		member := peer.ID(rune('a' + number))
		add(ours.tracer.subscribers, testTopic, member)
		if number < pubsub.GossipSubDlo {
			add(ours.tracer.mesh, testTopic, member)
		}
	}
	began := time.Now()
	ours.settle(testTopic)
	if took := time.Since(began); took >= settleTime || ours.settled[testTopic] != 7 {
		t.Errorf("%v for %d subscribers", took, ours.settled[testTopic])
	}
	delete(ours.tracer.mesh[testTopic], peer.ID("a"))
	ours.settled[testTopic] = 0
	began = time.Now()
	ours.settle(testTopic)
	if took := time.Since(began); took < settleTime {
		t.Errorf("a mesh of four was waited for %v", took)
	}
}
