package main

import (
	"encoding/binary"
	"testing"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
)

func publishing(size int) *pubsub.RPC {
	return &pubsub.RPC{RPC: pb.RPC{Publish: []*pb.Message{{Data: make([]byte, size)}}}}
}

func controlling() *pubsub.RPC {
	topic := "t"
	return &pubsub.RPC{RPC: pb.RPC{Control: &pb.ControlMessage{Graft: []*pb.ControlGraft{{TopicID: &topic}}}}}
}

// wired is the frame of an RPC as the router writes it.
func wired(t *testing.T, rpc *pubsub.RPC) []byte {
	t.Helper()
	raw, err := rpc.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.AppendUvarint(nil, uint64(len(raw))), raw...)
}

func TestWhatIsNotWrittenIsLost(t *testing.T) {
	f := newFlows(10, 1<<20)
	for _, rpc := range []*pubsub.RPC{publishing(10), controlling(), publishing(20), publishing(30), controlling()} {
		f.queued("a", rpc)
	}
	f.written("a", wired(t, controlling())) // priority
	f.written("a", wired(t, publishing(10)))
	if f.unsent() != 3 {
		t.Errorf("%d frames wait, want 3", f.unsent())
	}
	if publishes, controls := f.gone("a"); publishes != 2 || controls != 1 {
		t.Errorf("lost %d and %d, want 2 and 1", publishes, controls)
	}
	if publishes, controls := f.gone("a"); publishes+controls+f.unsent() != 0 {
		t.Error("a peer was lost twice")
	}
}

func TestRoomInFramesAndBytes(t *testing.T) {
	f := newFlows(2, 100)
	if !f.queued("a", publishing(500)) || f.hasRoom("a", 1) {
		t.Error("a first frame is taken whatever its size, and leaves no room")
	}
	if f.queued("a", publishing(1)) {
		t.Error("more bytes than allowed were not told")
	}
	for range 2 {
		f.queued("b", controlling())
	}
	if f.hasRoom("b", 1) || !f.hasRoom("c", 1) {
		t.Error("room is that of each peer")
	}
}
